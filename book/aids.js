// The path that the reader follows. A page has a hidden line for each path that it is on (labs/tools/book/aids.rs); a link
// in a path's table chooses the path, and from then on its line is shown, at both ends of the page.
{
    const key = "shardlab-path";
    // A browser may refuse to keep anything.
    const kept = use => {
        try {
            return use(localStorage);
        } catch {
            return null;
        }
    };
    let name = "";
    for (const element of document.querySelectorAll("main :is(h3, table)")) {
        if (element.tagName === "H3") name = element.textContent.split(/[,:]/)[0].trim();
        else {
            const path = name;
            element.addEventListener("click", event => {
                if (path && event.target.closest("a")) kept(storage => storage.setItem(key, path));
            });
        }
    }
    const chosen = kept(storage => storage.getItem(key));
    const line = [...document.querySelectorAll("nav.path")].find(line => line.dataset.path === chosen);
    if (line) {
        const leave = document.createElement("button");
        leave.textContent = "leave the path";
        leave.addEventListener("click", () => {
            kept(storage => storage.removeItem(key));
            document.querySelectorAll("nav.path").forEach(line => { line.hidden = true; });
        });
        line.lastElementChild.append(" ", leave);
        line.hidden = false;
        const below = line.cloneNode(true);
        below.querySelector("button").remove();
        document.querySelector("main").append(below);
    }
}

// What has the focus and can be scrolled or opened keeps its arrow keys: mdBook would turn the page.
document.addEventListener("keydown", event => {
    const focused = event.target.closest?.("main :is(pre, .table-wrapper, table, math, .term, summary)");
    if (focused && ["ArrowLeft", "ArrowRight"].includes(event.key)) event.stopImmediatePropagation();
}, true);
// The first stop of the keyboard: mdBook's sidebar has dozens, and comes before the text.
{
    const main = document.querySelector("main");
    if (main) {
        main.id ||= "text";
        main.tabIndex = -1;
        const skip = document.createElement("a");
        skip.className = "skip";
        skip.href = `#${main.id}`;
        skip.textContent = "Skip to the text";
        document.body.prepend(skip);
    }
}
// A table of sentences is no table on a phone: its rows become blocks (shardlab.css), each cell with its column's head.
for (const table of document.querySelectorAll("main .table-wrapper > table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (!rows.some(row => [...row.cells].some(cell => cell.textContent.length > 40))) continue;
    const heads = [...table.querySelectorAll("thead th")].map(head => head.textContent.trim());
    for (const row of rows) [...row.cells].forEach((cell, i) => { cell.dataset.head = i ? heads[i] ?? "" : ""; });
    table.classList.add("prose");
}

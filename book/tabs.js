// Listings in Rust with their twins in PyTorch, some in DeepSpeed, too (labs/tools/book/tabs.rs): of each the one that the reader has
// chosen is shown, on this page and on all others. Printed, all are there.
{
    const KEY = "shardlab.listing";
    const kept = use => {
        try {
            return use(localStorage);
        } catch {
            return null; // a browser that keeps nothing
        }
    };
    const all = [...document.querySelectorAll("main .twins")];

    // Shows one language everywhere; PyTorch's where DeepSpeed's is chosen and there is none. The page stays where it is below the reader's eyes: at `tab`.
    function choose(name, tab) {
        const top = tab?.getBoundingClientRect().top;
        for (const tabs of all) {
            const shown = tabs.querySelector(`[role=tab][data-in=${name}]`) ? name : "pytorch";
            for (const one of tabs.querySelectorAll("[role=tab]")) {
                one.setAttribute("aria-selected", one.dataset.in === shown);
                one.tabIndex = one.dataset.in === shown ? 0 : -1;
            }
            for (const panel of tabs.querySelectorAll("[role=tabpanel]")) {
                // Where the browser can, its own search finds what is hidden.
                if (panel.dataset.in === shown) panel.removeAttribute("hidden");
                else panel.setAttribute("hidden", "until-found");
            }
        }
        if (tab) scrollBy(0, tab.getBoundingClientRect().top - top);
    }

    for (const tabs of all) {
        const buttons = [...tabs.querySelectorAll("[role=tab]")];
        const take = tab => {
            choose(tab.dataset.in, tab);
            kept(storage => storage.setItem(KEY, tab.dataset.in));
        };
        buttons.forEach((tab, i) => {
            tab.addEventListener("click", () => take(tab));
            tab.addEventListener("keydown", event => {
                const next = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: -1 }[event.key];
                if (next === undefined || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
                event.preventDefault();
                event.stopPropagation(); // arrows turn mdBook's pages
                const to = buttons.at(next % buttons.length);
                to.focus();
                take(to);
            });
        });
        for (const panel of tabs.querySelectorAll("[role=tabpanel]")) panel.addEventListener("beforematch", () => choose(panel.dataset.in));
        tabs.classList.add("tabbed");
    }
    const chosen = kept(storage => storage.getItem(KEY));
    if (all.length) choose(["pytorch", "deepspeed"].includes(chosen) ? chosen : "rust");
}

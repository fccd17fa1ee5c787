// A Run button at every place of a page that shows a lab's command: the lab runs on the page, with flags that can be changed.
{
    // As it is typed in a checkout, or in a room.
    const COMMAND = /^(?:\$ )?(?:cargo run (?:--release )?--bin (lab\d\d|formats)(?: -- ([^|;>]*))?|\$SHARDLAB_BIN\/(lab\d\d|formats)(?: ([^|;>]*))?)$/;

    // Flags as a shell parts them.
    const parted = flags => [...flags.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(([, double, single, plain]) => double ?? single ?? plain);

    // The command that a block of code begins with, if it is a lab's and nothing else: its lab, and its flags.
    function command(code) {
        const [first] = code.textContent.replaceAll(/ \\\n +/g, " ").split("\n");
        const found = first.trim().match(COMMAND);
        return found && { lab: found[1] ?? found[3], flags: (found[2] ?? found[4] ?? "").trim() };
    }

    const files = new shardlab.Files();
    // One lab runs at a time: two would share the cores.
    let stop = () => {};

    // Files that a lab has left, to download.
    function downloads(place) {
        place.replaceChildren();
        for (const [path, bytes] of files.all()) {
            const link = document.createElement("a");
            link.textContent = `${path} (${bytes.length.toLocaleString("en")} bytes)`;
            link.download = path.split("/").at(-1);
            link.addEventListener("click", () => { link.href = URL.createObjectURL(new Blob([bytes])); });
            link.href = "#";
            place.append(link, document.createElement("br"));
        }
    }

    // A panel after `block`, in which a lab runs. `whenEnded` gets each run's exit code, and `whenWritten` what it writes.
    shardlab.panel = (block, { lab, flags }, whenEnded = () => {}, whenWritten = () => {}) => {
        const panel = document.createElement("section");
        panel.className = "run";
        panel.setAttribute("aria-label", `${lab} on this page`);
        panel.innerHTML = `<form><label>${lab} <input name="flags" spellcheck="false" autocomplete="off" aria-label="flags of ${lab}"></label>
            <button type="submit">Run</button> <button type="button" disabled>Stop</button></form>
            <p role="status"></p><div class="curve" hidden></div><pre hidden><code class="output nohighlight hljs" tabindex="0"></code></pre>
            <details hidden><summary>Files that labs have left on this page</summary><p></p></details>`;
        const [form, input] = [panel.querySelector("form"), panel.querySelector("input")];
        const [, stopButton] = panel.querySelectorAll("button");
        const [said, screen] = [panel.querySelector("[role=status]"), panel.querySelector("pre")];
        const left = panel.querySelector("details");
        const terminal = new shardlab.Terminal(screen.firstChild);
        const curve = new shardlab.Curve(panel.querySelector(".curve"));
        input.value = flags;
        // Seconds until its first words, and until its end.
        let [first, seconds] = [0, 0];
        let args = [];
        const ended = (code, why) => {
            terminal.flush();
            stop = () => {};
            stopButton.disabled = true;
            said.textContent = `Ended after ${seconds.toFixed(1)} s` + (code === 0 ? "." : ` with exit code ${code}${why ? `: ${why}` : ""}.`);
            panel.dataset.times = JSON.stringify([first, seconds]);
            panel.dataset.exit = code;
            downloads(left.querySelector("p"));
            left.hidden = files.all().length === 0;
            if (code === 0) shardlab.goesOn(panel, args, files);
            whenEnded(code);
        };
        form.addEventListener("submit", async event => {
            event.preventDefault();
            stop();
            args = [lab, ...parted(input.value)];
            let stopped = false;
            stop = () => { stopped = true; };
            delete panel.dataset.exit;
            terminal.clear();
            curve.clear();
            screen.hidden = false;
            stopButton.disabled = false;
            said.textContent = "The labs are loaded …";
            try {
                const labs = await shardlab.loadLabs();
                if (stopped) return ended(130, "stopped");
                const cores = navigator.hardwareConcurrency;
                said.textContent = `Runs in this browser, which has ${cores} ${cores === 1 ? "core" : "cores"} for it. Times are the browser's; and a loss may differ from a program's in its last digits, because products are added in another order here, with another libm.`;
                const begun = performance.now();
                const since = () => (performance.now() - begun) / 1000;
                first = 0;
                const write = text => {
                    first ||= since();
                    terminal.write(text);
                    curve.write(text);
                    whenWritten(text);
                };
                stop = shardlab.runLab(labs, args, files, write,
                    (code, why) => {
                        seconds = since();
                        ended(code, why);
                    });
            } catch (error) {
                ended(134, error.message);
            }
        });
        stopButton.addEventListener("click", () => stop());
        // The page's own keys turn its pages.
        panel.addEventListener("keydown", event => event.stopPropagation());
        block.after(panel);
        return panel;
    };

    async function begin() {
        if (!await shardlab.canRun) return;
        for (const code of document.querySelectorAll("main pre > code:is(.language-sh, .language-text, .output)")) {
            const found = command(code);
            const block = code.parentElement;
            if (!found || block.closest(".run")) continue;
            const button = document.createElement("button");
            button.className = "runs";
            button.textContent = `Run ${found.lab} here`;
            button.addEventListener("click", () => {
                if (!crossOriginIsolated) {
                    button.textContent = "This page is loaded once more …";
                    return void shardlab.shareMemory();
                }
                button.remove();
                const panel = shardlab.panel(block, found);
                panel.querySelector("form").requestSubmit();
                panel.querySelector("input").focus();
            });
            block.after(button);
        }
    }

    begin();
}

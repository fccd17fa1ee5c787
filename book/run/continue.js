// After a run that leaves a model, as lab03's does, a reader writes a line, and that model continues it. It is a second run of
// the lab that does not train, with the model's file.
{
    const FOLDER = "runs/lab03";
    const MODEL = `${FOLDER}/model.safetensors`;
    // The flags that say which model it is, and what its tokens are.
    const OF_MODEL = /^--(preset|layers|heads|embd|block|data)(=|$)/;

    // Runs the lab for its sample alone: with `files`, which stay as they are. What it printed, or why it could not.
    async function sampled(args, files, line) {
        const [, ...flags] = args;
        const same = flags.flatMap((flag, i) => OF_MODEL.test(flag) ? flags.slice(i, i + (flag.includes("=") ? 1 : 2)) : []);
        const only = ["--eval-only", "--eval-iters", "1", "--init-from", FOLDER, `--prompt=${line}`];
        const { printed, errors, code, why } = await shardlab.outcome(["lab03", ...same, ...only], files.copy());
        if (code !== 0) return { refused: errors || `The lab has ended with exit code ${code}. ${why}` };
        // The sample stands below the losses.
        return { sample: printed.replace(/^[^]*\bval_loss=.*\n/, "") };
    }

    // Offers it at the end of `panel`, whose run had `args` and left `files`; nothing, if no model is among them.
    shardlab.goesOn = (panel, args, files) => {
        panel.querySelector(".goes-on")?.remove();
        if (args[0] !== "lab03" || !files.all().some(([path]) => path === MODEL)) return;
        const place = document.createElement("div");
        place.className = "goes-on";
        place.innerHTML = `<form><label>Write a line, and this model continues it: <input name="line" required spellcheck="false"
            autocomplete="off"></label> <button type="submit">Continue it</button></form>
            <p role="status"></p><pre hidden><code class="output nohighlight hljs" tabindex="0"></code></pre>`;
        const [form, input, button] = ["form", "input", "button"].map(name => place.querySelector(name));
        const [said, screen] = [place.querySelector("[role=status]"), place.querySelector("pre")];
        form.addEventListener("submit", async event => {
            event.preventDefault();
            button.disabled = true;
            said.textContent = "The model reads, and goes on …";
            const { sample, refused } = await sampled(args, files, input.value).catch(error => ({ refused: error.message }));
            button.disabled = false;
            said.textContent = refused ?? "";
            screen.hidden = sample === undefined;
            const terminal = new shardlab.Terminal(screen.firstChild);
            terminal.clear();
            terminal.write(sample ?? "");
            terminal.flush();
        });
        panel.append(place);
    };
}

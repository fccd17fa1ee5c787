// The short exercises: a page's form is read by the exercise's own check, which the labs' module has. What a reader has
// solved stays in their browser. Where labs cannot run, and without scripts, the command stands in the form's place.
{
    const KEY = "shardlab.answers";
    const TYPED = "shardlab.typed";

    const { kept, keep } = shardlab.storage;

    // Runs an exercise's check. Returns whether the answer is right, and what the check says.
    async function check(name, fields) {
        const { printed, errors, code, why } = await shardlab.outcome(["check", name, ...fields], new shardlab.Files());
        const events = printed.split("\n").filter(line => line).map(line => JSON.parse(line));
        const ended = events.map(event => event.ended).find(end => end);
        // What was typed could not be read; or the check could not go on.
        if (!ended) return { right: false, says: errors || `The check has ended with exit code ${code}. ${why}` };
        const wrong = ended.rows.find(row => !row.agrees);
        const shown = wrong && wrong.expected !== "?" ? ` ${wrong.at}: expected ${wrong.expected}, found ${wrong.got}.` : "";
        return { right: code === 0, says: code === 0 ? "" : `${ended.means || ended.error}${shown}` };
    }

    function ask(place) {
        const [form, command, more] = ["form", ".typed", "details"].map(part => place.querySelector(part));
        const name = form.dataset.exercise;
        const [fields, said] = [form.querySelector("fieldset"), form.querySelector("[role=status]")];
        const inputs = [...form.querySelectorAll("input")];
        const typed = kept(TYPED)[name];
        if (typed) inputs.forEach((input, i) => { input.value = typed[i] ?? ""; });
        if (kept(KEY)[name]) said.textContent = "You have solved this here before.";
        command.hidden = true;
        form.hidden = false;
        form.addEventListener("submit", async event => {
            event.preventDefault();
            const given = inputs.map(input => input.value);
            if (!crossOriginIsolated) {
                keep(TYPED, name, given);
                said.textContent = "This page is loaded once more, so that it may run checks. Then check again.";
                return void shardlab.shareMemory();
            }
            keep(TYPED, name, undefined);
            fields.disabled = true;
            said.textContent = "The check runs …";
            const { right, says } = await check(name, given).catch(error => ({ right: false, says: `${error.message ?? error}` }));
            fields.disabled = false;
            place.dataset.right = right;
            said.textContent = right ? "That is right." : `Not yet. ${says}`;
            more.hidden = more.hidden && !right;
            if (right) keep(KEY, name, true);
            else inputs[0].focus();
        });
    }

    const places = document.querySelectorAll("section.answer");
    if (places.length > 0) shardlab.canRun.then(here => { if (here) places.forEach(ask); });
}

// The question that a lab's page asks before its run. The reader commits, the lab runs, and the page says what the answer was
// right for. What readers said stays in their browsers; the last page of the labs shows it, and saves it as a file.
{
    const KEY = "shardlab.predictions";

    function kept() {
        try {
            return JSON.parse(localStorage.getItem(KEY)) ?? {};
        } catch {
            return {}; // a browser that keeps nothing
        }
    }

    function keep(lab, said, right) {
        try {
            const when = Math.round(Date.now() / 1000);
            localStorage.setItem(KEY, JSON.stringify({ ...kept(), [lab]: { said, right, when } }));
        } catch { /* then it is said all the same */ }
    }

    // What an answer would have been right for, as `judged` in labs/kit/question.rs. Null: it is no answer.
    shardlab.judged = ({ choices, typed }, said) => {
        const letter = choices[said.charCodeAt(0) - "a".charCodeAt(0)];
        if (!typed) return said.length === 1 && letter ? { right: !letter.mistake, says: letter.mistake } : null;
        const number = Number(said.trim().replace(typed.unit.trim(), "").replaceAll(",", "").trim() || NaN);
        if (!Number.isFinite(number)) return null;
        const apart = ({ value }) => Math.abs(number - value) / Math.max(Math.abs(value), Number.MIN_VALUE);
        const [near] = choices.filter(choice => apart(choice) <= typed.within).sort((one, other) => apart(one) - apart(other));
        if (near) return { right: !near.mistake, says: near.mistake };
        const { value } = choices.find(choice => !choice.mistake);
        return { right: false, says: number < value ? "That is too low." : "That is too high." };
    };

    function field(lab, { choices, typed }) {
        if (typed) return `<label>Your prediction: <input name="said" inputmode="decimal" autocomplete="off" required>${typed.unit}</label>`;
        const letter = i => String.fromCharCode("a".charCodeAt(0) + i);
        return choices.map((choice, i) => `<label><input type="radio" name="said" value="${letter(i)}" required> <span></span></label>`).join("");
    }

    function ask(place, here) {
        const question = JSON.parse(place.querySelector("script").textContent);
        const { lab, choices, typed, why, flags } = question;
        const [asked, list, folded] = [place.querySelector("p"), place.querySelector("ol"), place.querySelector("details")];
        asked.id = `predict-${lab}`;
        list?.remove();
        folded.hidden = true;
        const form = document.createElement("form");
        form.innerHTML = `<fieldset aria-labelledby="${asked.id}">${field(lab, question)}</fieldset>
            <button type="submit">${here ? `Commit, and run ${lab} here` : "Commit"}</button> <button type="button">Leave it out</button>
            <p role="status"></p>`;
        form.querySelectorAll("label span").forEach((text, i) => { text.textContent = choices[i].text; });
        asked.after(form);
        const [fields, said, skip] = [form.querySelector("fieldset"), form.querySelector("[role=status]"), form.querySelector("button[type=button]")];
        const before = kept()[lab];
        if (before) said.textContent = `Last time you said: ${before.said}.`;
        const answer = (words, judged) => {
            const right = choices.find(choice => !choice.mistake).text;
            const verdict = judged ? `You said: ${words}. ${judged.right ? "That is right." : judged.says} ` : "";
            said.textContent = `${verdict}It is: ${right}. ${why}`;
            place.dataset.right = judged?.right ?? "";
            folded.hidden = false;
            folded.querySelector("summary").textContent = "What the other answers would be right for";
            skip.hidden = true;
        };
        let committed = ["", null];
        skip.addEventListener("click", () => answer(...committed));
        form.addEventListener("submit", event => {
            event.preventDefault();
            const given = new FormData(form).get("said");
            const judged = shardlab.judged(question, given);
            if (!judged) {
                said.textContent = "That is no number.";
                return;
            }
            const words = typed ? `${given}${typed.unit}` : choices.find((_, i) => form.elements.said[i].checked).text;
            keep(lab, words, judged.right);
            if (here && !crossOriginIsolated) {
                said.textContent = "This page is loaded once more, so that it may run labs. Then commit again.";
                return void shardlab.shareMemory();
            }
            fields.disabled = true;
            form.querySelector("button[type=submit]").hidden = true;
            skip.textContent = "Show the answer";
            committed = [words, judged];
            said.textContent = here ? "The run answers." : `Run it: cargo run --bin ${lab}`;
            if (!here) return;
            const panel = shardlab.panel(form, { lab, flags }, code => { if (code === 0) answer(words, judged); });
            panel.querySelector("form").requestSubmit();
            panel.querySelector("[name=flags]").focus();
        });
    }

    // All of them, on the page that ends the labs.
    function show(place) {
        const all = Object.entries(kept()).sort();
        if (all.length === 0) return;
        place.innerHTML = `<p><b>What you predicted.</b></p><table><thead><tr><th>lab</th><th>you said</th><th></th></tr></thead><tbody></tbody></table>
            <a download="predictions.json">Save it as a file</a>`;
        for (const [lab, { said, right }] of all) {
            const row = place.querySelector("tbody").insertRow();
            for (const text of [lab, said, right ? "right" : "not yet"]) row.insertCell().textContent = text;
        }
        const file = new Blob([JSON.stringify(kept(), null, 2)], { type: "application/json" });
        place.querySelector("a").href = URL.createObjectURL(file);
    }

    shardlab.canRun.then(here => document.querySelectorAll("section.predict").forEach(place => ask(place, here)));
    document.querySelectorAll("section.predictions").forEach(show);
}

// The question that a lab's page asks before its run, and those inside pages. The reader commits, the lab runs, and the page
// says what the answer was right for. What readers said stays in their browsers; the last page of the labs shows it, and saves
// it as a file. What follows the question before a run answers it, so it is folded until the reader has committed or passes on.
{
    const KEY = "shardlab.predictions";
    const PASSED = "shardlab.passed";
    const AGAIN = "shardlab.again";
    const QUESTIONS = "shardlab.questions";

    function kept(key = KEY) {
        try {
            return JSON.parse(localStorage.getItem(key)) ?? {};
        } catch {
            return {}; // a browser that keeps nothing
        }
    }

    function keep(key, lab, what) {
        try {
            localStorage.setItem(key, JSON.stringify({ ...kept(key), [lab]: what }));
        } catch { /* then it is said all the same */ }
    }

    // answer.js keeps what it has in the same way.
    shardlab.storage = { kept, keep };

    const now = () => Math.round(Date.now() / 1000);

    // The place that an address names, such as `#is-it-true`.
    function named(hash) {
        try {
            return document.getElementById(decodeURIComponent(hash.slice(1)));
        } catch {
            return null; // not an address that a page can have
        }
    }

    // Folds what follows a question, up to the next heading of its rank. Returns what opens it, which comes with the verdict: a
    // number below must not come before the sentence about the reader's own. It is open from the start for a reader who has
    // answered or passed before, on the page for printing, without scripts, and where a link or a search leads
    // into it. Where the browser can, its own search finds what is folded, and opens it.
    function fold(place, lab, pass) {
        const rest = [];
        for (let next = place.nextElementSibling; next && next.tagName !== "H2"; next = next.nextElementSibling) rest.push(next);
        const alone = document.querySelectorAll("section.predict").length === 1;
        const sought = (new URLSearchParams(location.search).get("highlight") ?? "").toLowerCase().split(/\s+/).filter(word => word);
        const text = rest.map(element => element.textContent).join(" ").toLowerCase();
        const asked = named(location.hash);
        const leads = sought.some(word => text.includes(word)) || rest.some(element => element.contains(asked));
        if (!alone || rest.length === 0 || leads || kept()[lab] || kept(PASSED)[lab]) return () => {};
        const folded = document.createElement("div");
        folded.id = `after-predict-${lab}`;
        folded.className = "fold";
        folded.append(...rest);
        const line = document.createElement("p");
        line.className = "folded";
        line.innerHTML = `<button type="button" aria-expanded="false" aria-controls="${folded.id}">Go on without a prediction</button>
            The rest of this section answers the question.`;
        place.after(line, folded);
        folded.setAttribute("hidden", "until-found");
        const open = () => {
            line.remove();
            folded.removeAttribute("hidden");
        };
        line.firstChild.addEventListener("click", () => {
            pass();
            open();
            const answer = place.querySelector("form button[type=button]");
            if (answer) [answer.textContent, answer.hidden] = ["Show the answer", false];
            // The button is gone; whoever uses keys goes on where it was.
            folded.tabIndex = -1;
            folded.focus({ preventScroll: true });
        });
        // After an answer the form's button opens it.
        open.committed = () => { line.firstChild.hidden = true; };
        open.folds = true;
        folded.addEventListener("beforematch", open);
        addEventListener("beforeprint", open);
        const goes = hash => {
            const target = named(hash);
            if (!target || !folded.hidden || !folded.contains(target)) return;
            open();
            target.scrollIntoView();
        };
        addEventListener("hashchange", () => goes(location.hash));
        // A link to where the address is already changes no address.
        document.addEventListener("click", event => goes(event.target.closest?.("a[href]")?.hash ?? ""));
        return open;
    }

    // A number in Rust's form. Of points and commas the last one is the point where the other comes before it (1.234,5) or
    // it parts no thousands (1,5): half of Europe writes so.
    function pointed(text) {
        const at = text.lastIndexOf(",");
        // Two points cannot both be one.
        if (at < 0) return text.split(".").length > 2 ? text.replaceAll(".", "") : text;
        const [whole, rest] = [text.slice(0, at), text.slice(at + 1)];
        const thousands = rest.length === 3 && /[1-9]/.test(whole);
        const isPoint = !rest.includes(".") && (whole.includes(".") || !whole.includes(",") && !thousands);
        return isPoint ? `${whole.replaceAll(/[.,]/g, "")}.${rest}` : text.replaceAll(",", "");
    }

    // The number that a reader has typed, as `read` in labs/kit/course/question.rs; browse.py compares the two. JavaScript alone
    // reads 0x10, so what is a number is said here. Null: it is none.
    shardlab.read = ({ unit }, said) => {
        const sign = unit.trim();
        let text = said.trim();
        while (sign && text.endsWith(sign)) text = text.slice(0, -sign.length);
        text = pointed(text.trim());
        const number = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
        return Number.isFinite(number) ? number : null;
    };

    // What an answer would have been right for, as `judged` in labs/kit/course/question.rs. Null: it is no answer.
    shardlab.judged = ({ choices, typed }, said) => {
        const letter = choices[said.charCodeAt(0) - "a".charCodeAt(0)];
        if (!typed) return said.length === 1 && letter ? { right: !letter.mistake, says: letter.mistake } : null;
        const number = shardlab.read(typed, said);
        if (number === null) return null;
        const apart = ({ value }) => Math.abs(number - value) / Math.max(Math.abs(value), Number.MIN_VALUE);
        const [near] = choices.filter(choice => apart(choice) <= typed.within).sort((one, other) => apart(one) - apart(other));
        if (near) return { right: !near.mistake, says: near.mistake };
        const { value } = choices.find(choice => !choice.mistake);
        return { right: false, says: number < value ? "That is too low." : "That is too high." };
    };

    function field(whose, { choices, typed }) {
        if (typed) return `<label>Your ${whose}: <input name="said" inputmode="decimal" autocomplete="off" required>${typed.unit}</label>`;
        const letter = i => String.fromCharCode("a".charCodeAt(0) + i);
        return choices.map((choice, i) => `<label><input type="radio" name="said" value="${letter(i)}" required> <span></span></label>`).join("");
    }

    function ask(place, question, open, here) {
        const { lab, choices, typed, why, flags, shown } = question;
        // One inside a page has a name, and no run that answers it.
        const { question: inside } = place.dataset;
        const [name, memory] = inside ? [inside, QUESTIONS] : [lab, KEY];
        const [asked, list, folded] = [place.querySelector("p"), place.querySelector("ol"), place.querySelector("details")];
        asked.id = `predict-${name.replace(" ", "-")}`;
        list?.remove();
        folded.hidden = true;
        const form = document.createElement("form");
        form.innerHTML = `<fieldset aria-labelledby="${asked.id}">${field(inside ? "answer" : "prediction", question)}</fieldset>
            <button type="submit">${here ? `Commit, and run ${lab} here` : "Commit"}</button> <button type="button">Leave it out</button>
            <p role="status"></p>`;
        form.querySelectorAll("label span").forEach((text, i) => { text.textContent = choices[i].text; });
        asked.after(form);
        const [fields, said, skip] = [form.querySelector("fieldset"), form.querySelector("[role=status]"), form.querySelector("button[type=button]")];
        // One way to leave a prediction out: where the section is folded, its own button.
        skip.hidden = open.folds ?? false;
        const before = kept(memory)[name];
        if (before) said.textContent = `Last time you said: ${before.said}.`;
        const answer = (words, judged) => {
            const right = choices.find(choice => !choice.mistake).text;
            open();
            const verdict = judged ? `You said: ${words}. ${judged.right ? "That is right." : judged.says} ` : "";
            said.textContent = `${verdict}It is: ${right}. ${why}`;
            place.dataset.right = judged?.right ?? "";
            folded.hidden = false;
            folded.querySelector("summary").textContent = "What the other answers would be right for";
            skip.hidden = true;
        };
        let committed = ["", null];
        skip.addEventListener("click", () => {
            if (!committed[1] && !inside) keep(PASSED, lab, now());
            answer(...committed);
        });
        // An answer of before the page was loaded once more.
        const again = !inside && kept(AGAIN)[lab];
        if (again) form.elements.said.value = again;
        form.addEventListener("submit", event => {
            event.preventDefault();
            const given = new FormData(form).get("said");
            const judged = shardlab.judged(question, given);
            if (!judged) {
                said.textContent = "That is no number.";
                return;
            }
            const words = typed ? `${given}${typed.unit}` : choices.find((_, i) => form.elements.said[i].checked).text;
            if (here && !crossOriginIsolated) {
                keep(AGAIN, lab, given);
                said.textContent = "This page is loaded once more, so that it may run labs. Then commit again.";
                return void shardlab.shareMemory();
            }
            keep(memory, name, { said: words, right: judged.right, when: now() });
            if (!inside) keep(AGAIN, lab, undefined);
            open.committed?.();
            fields.disabled = true;
            form.querySelector("button[type=submit]").hidden = true;
            if (inside) return answer(words, judged);
            [skip.textContent, skip.hidden] = ["Show the answer", false];
            committed = [words, judged];
            said.textContent = here ? `The run answers: ${lab} ${flags}` : `Run it: cargo run --bin ${lab}`;
            if (!here) return;
            // The verdict comes when the run has shown the answer, and the run goes on.
            const plain = text => text.replaceAll(/\x1b\[[0-9;]*[a-zA-Z]/g, "").replaceAll(/\s+/g, " ");
            let [screen, told] = ["", false];
            const tell = () => {
                if (!told) answer(words, judged);
                told = true;
            };
            const panel = shardlab.panel(form, { lab, flags }, code => { if (code === 0) tell(); }, text => {
                if (told) return;
                screen += text;
                if (plain(screen).includes(plain(shown))) tell();
            });
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

    for (const place of document.querySelectorAll("section.predict")) {
        const question = JSON.parse(place.querySelector("script").textContent);
        // At once: the answer must not be seen before the page knows whether it can run labs.
        const open = fold(place, question.lab, () => keep(PASSED, question.lab, now()));
        shardlab.canRun.then(here => ask(place, question, open, here));
    }
    for (const place of document.querySelectorAll("section.question")) {
        ask(place, JSON.parse(place.querySelector("script").textContent), () => {}, false);
    }
    document.querySelectorAll("section.predictions").forEach(show);
}

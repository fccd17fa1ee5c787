// What the interactive figures share.
//
// A page holds the static picture that the library drew. A script puts controls and a live drawing in its place; without
// scripts the picture stays. A control is a slider or a list over values. A drawing is a function of the controls'
// values and the width, and returns HTML. book/browse.py compares the formulas with the library's.

// A notebook has this file once per figure, and the figures before stay as they are.
var shardlab = Object.assign(window.shardlab ?? {}, {
    // The colours of the library's pictures (labs/kit/show/colour.rs). One per rank; for curves, algorithms and kinds of bytes
    // others, which are no rank's. Kinds of passes and communication share those.
    ranks: ["#1b98a8", "#c98a00", "#b0509f", "#3c9a4c", "#4577d0", "#d0503f", "#8f6b4e", "#8a6fe0"],
    curves: ["#5aa9e6", "#f0781e", "#9aae00", "#ee6fa8", "#7d8590", "#d98f8f"],
    passes: { forward: "#5aa9e6", backward: "#f0781e", weights: "#9aae00", link: "#ee6fa8" },

    // `value` with three significant digits, and commas: 0.00123, 12.3, 1,230.
    three(value) {
        const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3, roundingMode: "halfEven" };
        return value.toLocaleString("en", digits);
    },

    seconds(value) {
        const units = [["ns", 1e9, 999.5], ["µs", 1e6, 999.5], ["ms", 1e3, 999.5], ["s", 1, 59.95]];
        const found = units.find(([, factor, end]) => value * factor < end);
        if (found) return `${shardlab.three(value * found[1])} ${found[0]}`;
        const two = number => String(number).padStart(2, "0");
        const [whole, minutes, hours] = [1, 60, 3600].map(unit => Math.round(value / unit));
        if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
        if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
        return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
    },

    // Bytes in powers of 1000, or with `step` 1024 in powers of 1024.
    bytes(value, step = 1000) {
        const units = step === 1000 ? ["B", "kB", "MB", "GB", "TB", "PB"] : ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let unit = 0;
        for (; Math.round(value) >= step && unit < 5; unit++) value /= step;
        const whole = unit === 0 || value >= 999.5;
        return `${whole ? Math.round(value).toLocaleString("en") : shardlab.three(value)} ${units[unit]}`;
    },

    // The data of a figure, which its page has beside the picture; null on pages without the figure.
    data(name) {
        const source = document.querySelector(`figure[data-figure="${name}"] > script[type="application/json"]`);
        return JSON.parse(source?.textContent ?? "null");
    },

    // Fills what has the colour "url(#waits)": time in which a rank waits.
    hatched: `<defs><pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path d="M0 0 V6" stroke="currentColor" stroke-opacity="0.5" stroke-width="2"/></pattern></defs>`,

    text: (x, y, anchor, words) => `<text x="${x}" y="${y}" text-anchor="${anchor}">${words}</text>`,

    area: (x, y, width, height, colour) =>
        `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${colour}"/>`,

    // The look of a box that is lightly filled: letters can be read on it.
    tinted: colour => `fill="${colour}" fill-opacity="0.35" stroke="${colour}"`,

    // An empty box with rounded corners.
    frame: (x, y, width, height, colour, line) =>
        `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="5" fill="none" stroke="${colour}"
          stroke-width="${line}"/>`,

    // An inline SVG of this size in CSS pixels; `title` is for those who do not see it.
    svg: (width, height, title, body) =>
        `<svg class="figure" role="img" aria-label="${title}" viewBox="0 0 ${width} ${height}" width="${width}"
          height="${height}" font-size="13" fill="currentColor">${body}</svg>`,

    // A table; the first cell of a row is the row's head, and row number `best` stands out.
    table(heads, rows, best) {
        const head = heads.map(name => `<th scope="col">${name}</th>`).join("");
        const row = ([name, ...cells], i) => `<tr${i === best ? ' class="best"' : ""}><th scope="row">${name}</th>
            ${cells.map(cell => `<td>${cell}</td>`).join("")}</tr>`;
        return `<table><tr>${head}</tr>${rows.map(row).join("")}</table>`;
    },

    // Makes the figures of this name live, each once: a notebook runs a script for each cell. `controls` has for each
    // name a label, the values, the first value, and the values in words, which may depend on the controls before.
    // `stuck` says why a slider cannot move, if it cannot.
    // `draw` returns the drawing and a sentence about it. `begin` may add to a figure.
    live(name, controls, draw, begin) {
        for (const place of document.querySelectorAll(`figure[data-figure="${name}"]:not(:has(.live))`)) {
            const live = document.createElement("div");
            live.className = "live";
            live.innerHTML = `<div class="controls">${Object.entries(controls).map(shardlab.control).join("")}</div>
                <div class="drawing"></div><p role="status"></p>`;
            const inputs = [...live.querySelectorAll("[name]")];
            const [drawing, said] = [live.querySelector(".drawing"), live.querySelector("[role=status]")];
            const read = () => Object.fromEntries(inputs.map(input => [input.name, controls[input.name].values[input.value]]));
            const redraw = () => {
                const values = read();
                for (const input of inputs.filter(input => input.type === "range")) {
                    const { words = String, stuck } = controls[input.name];
                    input.setAttribute("aria-valuetext", words(values[input.name], values));
                    input.previousElementSibling.textContent = words(values[input.name], values);
                    const why = stuck?.(values) || "";
                    input.disabled = why !== "";
                    input.nextElementSibling.textContent = why;
                }
                const drawn = draw(values, Math.max(drawing.clientWidth, 240), live);
                drawing.innerHTML = drawn.picture;
                if (said.textContent !== drawn.said) said.textContent = drawn.said;
            };
            // The page's own keys turn its pages; these belong to the figure.
            live.addEventListener("keydown", event => event.stopPropagation());
            live.addEventListener("input", redraw);
            place.querySelector("svg").replaceWith(live);
            begin?.(live, redraw, read);
            redraw();
            let width = drawing.clientWidth;
            new ResizeObserver(() => {
                if (width === drawing.clientWidth) return;
                width = drawing.clientWidth;
                redraw();
                drawing.getAnimations({ subtree: true }).forEach(animation => animation.finish());
            }).observe(drawing);
        }
    },

    // Adds buttons that step through the values of a slider, from its end to its beginning.
    player(live, slider, milliseconds) {
        const buttons = document.createElement("div");
        buttons.innerHTML = ["previous", "play", "next"].map(name => `<button type="button">${name}</button>`).join(" ");
        const [previous, play, next] = buttons.children;
        live.querySelector(".controls").append(buttons);
        let timer;
        const stop = () => {
            timer = clearInterval(timer);
            play.textContent = "play";
        };
        const step = by => {
            const [to, end] = [Number(slider.value) + by, Number(slider.max)];
            slider.value = to > end ? 0 : to < 0 ? end : to;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        };
        previous.addEventListener("click", () => { stop(); step(-1); });
        next.addEventListener("click", () => { stop(); step(1); });
        play.addEventListener("click", () => {
            if (timer) return stop();
            play.textContent = "pause";
            const on = () => {
                step(1);
                if (slider.value === slider.max) stop();
            };
            timer = setInterval(on, milliseconds);
            on();
        });
    },

    // A slider over a control's values, or a list to choose from.
    control([name, { label, values, start, words = String, list }]) {
        const first = values.indexOf(start);
        if (!list) {
            const range = `<input type="range" name="${name}" max="${values.length - 1}" value="${first}"><small></small>`;
            return `<label>${label} <b></b>${range}</label>`;
        }
        const option = (value, i) => `<option value="${i}"${i === first ? " selected" : ""}>${words(value)}</option>`;
        return `<label>${label} <select name="${name}">${values.map(option).join("")}</select></label>`;
    },
});

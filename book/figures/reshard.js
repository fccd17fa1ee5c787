// Resharding: a model saved on some ranks continues on others. The slices that each rank holds before and now, and the
// pieces that a new rank reads from slices of old ones. Every case is data that real ranks wrote (labs/tools/book/reshard.rs
// says how). This script shows it, and cuts nothing.
{
    const { ranks: colours, svg, table, text } = shardlab;
    const data = shardlab.data("reshard");
    // They follow each other in one flat buffer. An element is a 32-bit number.
    const parameters = data?.parameters ?? [];
    const starts = parameters.map((_, i) => parameters.slice(0, i).reduce((sum, [, numel]) => sum + numel, 0));
    const total = parameters.reduce((sum, [, numel]) => sum + numel, 0);

    // Every rank's slice: its elements with padding, and for each parameter in it the first element, the one after the last,
    // and where the first lies in the slice. Stage 1 joins all parameters and cuts the line; stage 3 cuts each one.
    const slicesOf = (stage, ranks) => data.slices.find(each => each.stage === stage && each.ranks === ranks).slices;

    // What each new rank reads. A piece: parameter, first element, the one after the last, where it goes in the new slice, the
    // old rank, and where it lies in that one's slice.
    const piecesOf = ({ saved, resumed, stage }) =>
        data.pieces.find(each => each.stage === stage && each.saved === saved && each.resumed === resumed).pieces;

    const numbers = [1, 2, 3, 4, 5, 6, 7, 8];
    const stages = { 1: "all parameters, joined (ZeRO-1)", 3: "each parameter (ZeRO-3)" };
    const controls = {
        saved: { label: "saved on <i>N</i> ranks", values: numbers, start: 4 },
        resumed: { label: "resumed on <i>M</i> ranks", values: numbers, start: 3 },
        rank: { label: "this new rank", values: numbers.map(n => n - 1), start: 1, words: rank => `rank ${rank}`,
                stuck: values => values.resumed === 1 && "There is only one rank." },
        stage: { label: "the new ranks cut", values: [1, 3], start: 1, words: stage => stages[stage], list: true },
    };

    function picture({ saved, resumed, rank }, { old, now, pieces }, width) {
        const [gap, high, ribbon] = [width < 480 ? 3 : 6, 26, 40];
        const most = Math.max(saved * old[0][0], resumed * now[0][0]);
        const each = (width - 4 - gap * (Math.max(saved, resumed, parameters.length) - 1)) / most;
        const [top, middle, bottom] = [0, 1, 2].map(row => 24 + row * (high + ribbon));
        const left = (slices, rank) => 2 + rank * (slices[0][0] * each + gap);
        const whole = (i, element) => 2 + i * gap + (starts[i] + element) * each;
        const box = (x, y, numel, look) => `<rect x="${x.toFixed(1)}" y="${y}" width="${(numel * each).toFixed(1)}" height="${high}" ${look}/>`;
        const line = 'fill="none" stroke="currentColor"';
        let [faint, strong, boxes] = ["", "", ""];
        const flow = (chosen, [from, y], [to, end], numel, colour) => {
            const [wide, half] = [numel * each, (y + end) / 2];
            const path = `<path d="M${from} ${y} C${from} ${half} ${to} ${half} ${to} ${end} h${wide} C${to + wide} ${half}
                ${from + wide} ${half} ${from + wide} ${y} Z" fill="${colour}" fill-opacity="${chosen ? 0.75 : 0.2}"/>`;
            if (chosen) strong += path; else faint += path;
        };
        pieces.forEach((mine, which) => mine.forEach(([i, first, end, at, from, there]) => {
            const [colour, chosen, numel] = [colours[from], which === rank, end - first];
            const [upper, inner, lower] = [left(old, from) + there * each, whole(i, first), left(now, which) + at * each];
            flow(chosen, [upper, top + high], [inner, middle], numel, colour);
            flow(chosen, [inner, middle + high], [lower, bottom], numel, colour);
            const look = `fill="${colour}" fill-opacity="${chosen ? 0.75 : 0.3}"`;
            boxes += box(upper, top, numel, look) + box(inner, middle, numel, look) + box(lower, bottom, numel, look);
        }));
        parameters.forEach(([name, numel], i) => {
            const x = whole(i, 0);
            boxes += box(x, middle, numel, line) + text(x + numel * each / 2, middle + 18, "middle", name);
        });
        for (const [slices, y, isNew] of [[old, top, false], [now, bottom, true]]) {
            slices.forEach(([numel, held], which) => {
                const x = left(slices, which);
                // Padding is what lies between the parameters of a slice, and after them.
                const ends = [...held.map(([, first, end, at]) => [at, at + end - first]), [numel, numel]];
                ends.forEach(([at], i) => {
                    const before = i ? ends[i - 1][1] : 0;
                    if (before < at) boxes += box(x + before * each, y, at - before, `${line} stroke-dasharray="3 3" stroke-opacity="0.7"`);
                });
                const chosen = isNew && which === rank;
                const named = numel * each > 50 ? `rank ${which}` : which;
                boxes += box(x, y, numel, `${line} stroke-width="${chosen ? 3 : 1}"`)
                    + text(x + numel * each / 2, y + 18, "middle", named);
                if (isNew) boxes += box(x, y, numel, `fill="transparent" data-cell="${which}"`);
            });
        }
        const [saves, resumes] = [saved, resumed].map(count => count === 1 ? "1 rank" : `${count} ranks`);
        const words = text(0, 14, "start", `saved on ${saves}`) + text(0, bottom + high + 19, "start", `resumed on ${resumes}`);
        return [words + faint + strong + boxes, bottom + high + 26];
    }

    const count = (number, what) => `${number || "no"} ${what}${number === 1 ? "" : "s"}`;

    function draw(values, width) {
        const rank = Math.min(values.rank, values.resumed - 1);
        const [old, now, pieces] = [slicesOf(1, values.saved), slicesOf(values.stage, values.resumed), piecesOf(values)];
        const mine = pieces[rank];
        const [body, height] = picture({ ...values, rank }, { old, now, pieces }, width);
        const from = [...new Set(mine.map(piece => piece[4]))].sort();
        const whom = from.length === 1 ? `rank ${from[0]}` : `ranks ${from.slice(0, -1).join(", ")} and ${from.at(-1)}`;
        const padding = slices => slices.length * slices[0][0] - total;
        const reads = mine.length === 0 ? "reads nothing: its slice is only padding"
            : `reads ${count(mine.length, "piece")} from ${whom} of ${values.saved}`;
        const said = `Rank ${rank} of ${values.resumed} ${reads}. Nobody reads padding: `
            + `${count(padding(old), "element")} before, ${padding(now) || "none"} now.`;
        const rows = mine.map(([i, first, end, , old, there]) => {
            const swatch = `<svg width="26" height="12" aria-hidden="true"><rect x="6" width="14" height="12"
                fill="${colours[old]}"/></svg>`;
            const elements = end - first === 1 ? first : `${first} to ${end - 1}`;
            return [`${swatch} <span>rank ${old}</span>`, `${4 * there} to ${4 * (there + end - first) - 1}`, parameters[i][0], elements];
        });
        const below = rows.length ? table(["saved by", "bytes there", "parameter", "elements"], rows) : "";
        return { said, picture: svg(width, height, `Slices before and now. ${said}`, body) + below };
    }

    if (data) shardlab.live("reshard", controls, draw, (live, redraw, read) => {
        const slider = live.querySelector("[name=rank]");
        const end = () => slider.max = Math.max(1, read().resumed - 1);
        end();
        // Before the figure is drawn again: there are as many ranks as the controls say.
        live.addEventListener("input", end, true);
        live.querySelector(".drawing").addEventListener("click", event => {
            const cell = event.target.closest("[data-cell]");
            if (!cell) return;
            slider.value = cell.dataset.cell;
            redraw();
        });
    });
}

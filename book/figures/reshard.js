// Resharding: a model saved on some ranks continues on others. The slices that each rank holds before and now, and the
// pieces that a new rank reads from slices of old ones.
{
    const { ranks: colours, svg, table, text } = shardlab;
    // They follow each other in one flat buffer. An element is a 32-bit number.
    const parameters = [["embed", 8], ["qkv", 6], ["fc", 4], ["out", 4]];
    const starts = parameters.map((_, i) => parameters.slice(0, i).reduce((sum, [, numel]) => sum + numel, 0));
    const total = parameters.reduce((sum, [, numel]) => sum + numel, 0);

    // Every rank's slice: its elements with padding, and for each parameter in it the first element, the one after the last,
    // and where the first lies in the slice. Stage 1 joins all parameters and cuts the line; stage 3 cuts each one.
    function cut(stage, ranks) {
        const all = Array.from({ length: ranks }, () => [0, []]);
        const part = 2 * Math.ceil(total / (2 * ranks));
        all.forEach((slice, rank) => parameters.forEach(([, numel], i) => {
            const length = stage === 3 ? Math.ceil(numel / ranks) : part;
            const begin = rank * length - (stage === 3 ? 0 : starts[i]);
            const [first, end] = [Math.max(0, begin), Math.min(numel, begin + length)];
            if (first < end) slice[1].push([i, first, end, stage === 3 ? slice[0] : first - begin]);
            slice[0] = stage === 3 ? slice[0] + length : part;
        }));
        return all;
    }

    // A piece: parameter, first element, the one after the last, where it goes in the new slice, the old rank, and where it
    // lies in that one's slice.
    function pieces(old, [, mine]) {
        return mine.flatMap(([i, first, end, at]) => old.flatMap(([, held], rank) => held.flatMap(([j, from, to, there]) => {
            const [begin, stop] = [Math.max(first, from), Math.min(end, to)];
            return i === j && begin < stop ? [[i, begin, stop, at + begin - first, rank, there + begin - from]] : [];
        })));
    }

    shardlab.reshard = ({ saved, resumed, stage, rank }) => {
        const [old, now] = [cut(1, saved), cut(stage, resumed)];
        return { old, now, pieces: pieces(old, now[rank]) };
    };

    const numbers = [1, 2, 3, 4, 5, 6, 7, 8];
    const stages = { 1: "all parameters, joined (ZeRO-1)", 3: "each parameter (ZeRO-3)" };
    const controls = {
        saved: { label: "saved on <i>N</i> ranks", values: numbers, start: 4 },
        resumed: { label: "resumed on <i>M</i> ranks", values: numbers, start: 3 },
        rank: { label: "this new rank", values: numbers.map(n => n - 1), start: 1, words: rank => `rank ${rank}`,
                stuck: values => values.resumed === 1 && "There is only one rank." },
        stage: { label: "the new ranks cut", values: [1, 3], start: 1, words: stage => stages[stage], list: true },
    };

    function picture({ saved, resumed, rank }, { old, now }, width) {
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
        now.forEach((slice, which) => pieces(old, slice).forEach(([i, first, end, at, from, there]) => {
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
        for (const [slices, y] of [[old, top], [now, bottom]]) {
            slices.forEach(([numel, held], which) => {
                const x = left(slices, which);
                // Padding is what lies between the parameters of a slice, and after them.
                const ends = [...held.map(([, first, end, at]) => [at, at + end - first]), [numel, numel]];
                ends.forEach(([at], i) => {
                    const before = i ? ends[i - 1][1] : 0;
                    if (before < at) boxes += box(x + before * each, y, at - before, `${line} stroke-dasharray="3 3" stroke-opacity="0.7"`);
                });
                const chosen = slices === now && which === rank;
                const named = numel * each > 50 ? `rank ${which}` : which;
                boxes += box(x, y, numel, `${line} stroke-width="${chosen ? 3 : 1}"`)
                    + text(x + numel * each / 2, y + 18, "middle", named);
                if (slices === now) boxes += box(x, y, numel, `fill="transparent" data-cell="${which}"`);
            });
        }
        const [saves, resumes] = [saved, resumed].map(count => count === 1 ? "1 rank" : `${count} ranks`);
        const words = text(0, 14, "start", `saved on ${saves}`) + text(0, bottom + high + 19, "start", `resumed on ${resumes}`);
        return [words + faint + strong + boxes, bottom + high + 26];
    }

    const count = (number, what) => `${number || "no"} ${what}${number === 1 ? "" : "s"}`;

    function draw(values, width) {
        const rank = Math.min(values.rank, values.resumed - 1);
        const found = shardlab.reshard({ ...values, rank });
        const [body, height] = picture({ ...values, rank }, found, width);
        const from = [...new Set(found.pieces.map(piece => piece[4]))].sort();
        const whom = from.length === 1 ? `rank ${from[0]}` : `ranks ${from.slice(0, -1).join(", ")} and ${from.at(-1)}`;
        const padding = slices => slices.length * slices[0][0] - total;
        const reads = found.pieces.length === 0 ? "reads nothing: its slice is only padding"
            : `reads ${count(found.pieces.length, "piece")} from ${whom} of ${values.saved}`;
        const said = `Rank ${rank} of ${values.resumed} ${reads}. Nobody reads padding: `
            + `${count(padding(found.old), "element")} before, ${padding(found.now) || "none"} now.`;
        const rows = found.pieces.map(([i, first, end, , old, there]) => {
            const swatch = `<svg width="26" height="12" aria-hidden="true"><rect x="6" width="14" height="12"
                fill="${colours[old]}"/></svg>`;
            const elements = end - first === 1 ? first : `${first} to ${end - 1}`;
            return [`${swatch} <span>rank ${old}</span>`, `${4 * there} to ${4 * (there + end - first) - 1}`, parameters[i][0], elements];
        });
        const below = rows.length ? table(["saved by", "bytes there", "parameter", "elements"], rows) : "";
        return { said, picture: svg(width, height, `Slices before and now. ${said}`, body) + below };
    }

    shardlab.live("reshard", controls, draw, (live, redraw, read) => {
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

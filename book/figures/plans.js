// The explorer of plans: model, devices, memory and network, and the plans that fit. Every case is data that the library
// wrote (labs/tools/book/plans.rs says how). This script shows it, and computes no plan.
{
    const { curves, svg, table, text } = shardlab;
    const data = shardlab.data("plans");
    const kinds = [["weights, gradients, optimizer", 0.75], ["activations", 0.4], ["gathered, recomputed", 0.15]];
    // What the seconds of a step are for. The axes have the colours of the explorer of meshes.
    const parts = [["computing", curves[4]], ["computing again", curves[5]], ["tensor", curves[0]], ["pipeline", curves[2]],
        ["bubble", "url(#bubble)"], ["data", curves[1]]];
    const hatched = `<defs><pattern id="bubble" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path d="M0 0 V5" stroke="currentColor" stroke-opacity="0.6" stroke-width="2"/></pattern></defs>`;

    // One case: what the search found.
    shardlab.plans = ({ model, devices, memory, network }) => {
        const place = [["models", model], ["devices", devices], ["memories", memory], ["networks", network]];
        const index = place.reduce((at, [name, value]) => at * data[name].length + data[name].indexOf(value), 0);
        return data.cases[index];
    };

    // Where each part of a step begins, and where the last ends, as shares of the longest step that is shown.
    shardlab.steps = rows => rows.map(row => row[8].reduce((ends, part) => [...ends, ends.at(-1) + part / 1000], [0]));

    // The part of the step that grows most from one plan to another; if none grows by much, nothing.
    function grown([, , , , , , , , fast], [, , , , , , , , slow]) {
        const more = slow.map((part, i) => part - fast[i]);
        const most = Math.max(...more);
        return most >= 5 ? parts[more.indexOf(most)][0] : "";
    }

    const gigabytes = hundredths => shardlab.bytes(hundredths * 1e7);

    function draw(values, width) {
        const [tried, fit, advice, rows, least] = shardlab.plans(values);
        const room = data.room[data.memories.indexOf(values.memory)];
        const devices = `${values.devices.toLocaleString("en")} device${values.devices > 1 ? "s" : ""}`;
        const rule = `The source's rule: ${advice}.`;
        if (rows.length === 0) {
            const said = `${values.model} on ${devices}: none of ${tried.toLocaleString("en")} strategies fits. ${rule}`;
            const needs = least ? ` The one that needs least is ${least}, and a plan may use ${room} GB.` : "";
            return { said, picture: `<div class="refused" style="height: 160px"><p>Nothing fits.${needs}</p></div>` };
        }
        const x = share => 1 + (width - 2) * Math.min(1, share);
        const narrow = width < 600;
        let [at, line] = [0, 0];
        const key = (words, look) => {
            const room = 26 + 7 * words.length;
            if (at + room > width) [at, line] = [60, line + 20];
            const drawn = `<rect x="${at}" y="${line + 2}" width="12" height="12" ${look}/>` + text(at + 17, line + 13, "start", words);
            at += room;
            return drawn;
        };
        const thin = 'stroke="currentColor" stroke-width="0.5"';
        const ofPart = ([, colour]) => `fill="${colour}" ${colour[0] === "u" ? thin : ""}`;
        const ofKind = ([, opacity]) => `fill="currentColor" fill-opacity="${opacity}" ${thin}`;
        let body = hatched + text(0, 13, "start", "step");
        at = 60;
        body += parts.map(part => key(part[0], ofPart(part))).join("");
        [at, line] = [60, line + 20];
        body += text(0, line + 13, "start", "memory") + kinds.map(kind => key(narrow ? kind[0].split(",")[0] : kind[0], ofKind(kind))).join("");
        const [row, top] = [54, line + 32];
        const bar = (begin, end, y, high, look) => end <= begin ? ""
            : `<rect x="${begin.toFixed(1)}" y="${y}" width="${(end - begin).toFixed(1)}" height="${high}" ${look}/>`;
        const steps = shardlab.steps(rows);
        rows.forEach(([words, , , , likely, , , bytes], i) => {
            const y = top + row * i;
            body += text(0, y + 12, "start", words) + text(width, y + 12, "end", likely);
            body += parts.map((part, kind) => bar(x(steps[i][kind]), x(steps[i][kind + 1]), y + 18, 16, ofPart(part))).join("");
            let held = 0;
            body += bytes.map((size, kind) => {
                const begin = held;
                held += size / (100 * room);
                return bar(x(begin), x(held), y + 37, 7, ofKind(kinds[kind]));
            }).join("") + `<rect x="1" y="${y + 37}" width="${width - 2}" height="7" fill="none" stroke="currentColor"/>`;
        });
        const height = top + row * rows.length;
        const best = rows[0];
        const known = !best[4].endsWith("?");
        const takes = known ? `probably ${best[4]} per step` : `predicted ${best[3]} per step; no published run is like it`;
        // Why it is the fastest: what takes longer in the slowest of those that are shown.
        const lengths = steps.map(ends => ends.at(-1));
        const slowest = lengths.indexOf(Math.max(...lengths));
        const longer = Math.round(100 * (lengths[slowest] / lengths[0] - 1));
        const more = grown(best, rows[slowest]);
        const why = more && longer >= 1 ? `The step of ${rows[slowest][0]} is ${longer}% longer, and what grows most is "${more}". ` : "";
        const said = `${values.model} on ${devices}: ${fit.toLocaleString("en")} of ${tried.toLocaleString("en")} strategies fit. ` +
            `The fastest is ${best[0]}, ${takes}. ${why}${rule}`;
        // A phone has room for some columns. The picture has the times that plans probably take; they are in their order.
        const fit_in = row => narrow ? [row[0], ...row.slice(6)] : row;
        // A line ends behind a plus, and not inside of what stands between two.
        const lines = words => words.replaceAll(" + ", " +|").split("|")
            .map(part => part.length < 16 ? `<span>${part}</span>` : part).join(" ");
        const cells = rows.map(([words, micro, again, time, likely, tokens, mfu, bytes]) =>
            fit_in([lines(words), micro, again || "no", time, likely, tokens, mfu, gigabytes(bytes.reduce((sum, each) => sum + each))]));
        const heads = fit_in(["plan", "micro-batch, sequences", "recomputes", "predicted step", "probably", "tokens/s", "MFU", "memory"]);
        const title = `Steps of the best plans, and bytes per rank; a whole bar of bytes is ${room} GB. ${said}`;
        return { said, picture: svg(width, height, title, body) + table(heads, cells, 0) };
    }

    if (data) {
        const controls = {
            model: { label: "model", values: data.models, start: "llama-3-70b", list: true },
            devices: { label: "devices", values: data.devices, start: 512, words: n => n.toLocaleString("en") },
            memory: { label: "device", values: data.memories, start: "h100-80g", list: true,
                      words: name => `${name}: a plan may use ${data.room[data.memories.indexOf(name)]} GB` },
            network: { label: "network", values: data.networks, start: "8 x 400 Gbit/s per node", list: true },
        };
        shardlab.live("plans", controls, draw);
    }
}

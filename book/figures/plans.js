// The explorer of plans: model, devices, memory and network, and the plans that fit. Every case is data that the library
// wrote (labs/tools/book/plans.rs says how). This script shows it, and computes no plan.
{
    const { area, curves, frame, svg, table, text } = shardlab;
    const source = document.querySelector('figure[data-figure="plans"] > script[type="application/json"]');
    const data = JSON.parse(source?.textContent ?? "null");
    const kinds = ["weights, gradients, optimizer", "activations", "gathered, recomputed"];

    // One case: what the search found.
    shardlab.plans = ({ model, devices, memory, network }) => {
        const place = [["models", model], ["devices", devices], ["memories", memory], ["networks", network]];
        const index = place.reduce((at, [name, value]) => at * data[name].length + data[name].indexOf(value), 0);
        return data.cases[index];
    };

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
        const [row, top] = [44, 32];
        const x = held => 1 + (width - 2) * Math.min(1, held / (100 * room));
        const narrow = width < 600;
        let at = 0;
        let body = kinds.map((kind, i) => {
            const words = narrow ? kind.split(",")[0] : kind;
            const drawn = area(at, 2, 12, 12, curves[i]) + text(at + 17, 13, "start", words);
            at += 30 + 7 * words.length;
            return drawn;
        }).join("");
        rows.forEach(([words, , , , likely, , , bytes], i) => {
            const y = top + row * i;
            body += text(0, y + 12, "start", words) + text(width, y + 12, "end", likely);
            let held = 0;
            bytes.forEach((size, kind) => {
                const [begin, end] = [x(held), x(held += size)];
                body += area(begin, y + 18, Math.max(0, end - begin), 14, curves[kind]);
            });
            body += frame(1, y + 17, width - 2, 16, "currentColor", 1);
        });
        const height = top + row * rows.length;
        const best = rows[0];
        const known = !best[4].endsWith("?");
        const takes = known ? `probably ${best[4]} per step` : `predicted ${best[3]} per step; no published run is like it`;
        const said = `${values.model} on ${devices}: ${fit.toLocaleString("en")} of ${tried.toLocaleString("en")} strategies fit. ` +
            `The fastest is ${best[0]}, ${takes}. ${rule}`;
        // A phone has room for some columns. The picture has the times that plans probably take; they are in their order.
        const fit_in = row => narrow ? [row[0], ...row.slice(6)] : row;
        // A line ends behind a plus, and not inside of what stands between two.
        const lines = words => words.replaceAll(" + ", " +|").split("|")
            .map(part => part.length < 16 ? `<span>${part}</span>` : part).join(" ");
        const cells = rows.map(([words, micro, again, time, likely, tokens, mfu, bytes]) =>
            fit_in([lines(words), micro, again || "no", time, likely, tokens, mfu, gigabytes(bytes.reduce((sum, each) => sum + each))]));
        const heads = fit_in(["plan", "micro-batch, sequences", "recomputes", "predicted step", "probably", "tokens/s", "MFU", "memory"]);
        const title = `Bytes per rank of the best plans; a whole bar is ${room} GB. ${said}`;
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

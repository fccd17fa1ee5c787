// Overlap: the backward pass of a step, and the link that averages its gradients bucket by bucket. Each bucket's all-reduce
// starts when its gradients are complete and the link is free.
{
    const { area, bytes, frame, hatched, passes, seconds, svg, table, text, tinted } = shardlab;
    const gradient = 2;

    // One step. `waits` is how long the rank waits after its backward pass, and `hides` the tokens from which on, by the
    // formula without latency, the link keeps up. `each` is called with the start and the end of each all-reduce.
    shardlab.exposed = ({ parameters, tokens, flops, ranks, latency, bandwidth, bucket }, each) => {
        const backward = 4 * parameters * tokens / flops;
        const elements = bucket / gradient;
        const count = Math.ceil(parameters / elements);
        let [free, link, full, last] = [0, 0, 0, 0];
        for (let i = 0; i < count; i++) {
            const end = Math.min(parameters, (i + 1) * elements);
            last = 2 * (ranks - 1) * (latency + gradient * (end - i * elements) / ranks / bandwidth);
            const start = Math.max(free, backward * end / parameters);
            free = start + last;
            full = Math.max(full, last);
            link += last;
            each?.(start, free);
        }
        const hides = gradient * (ranks - 1) * flops / (2 * ranks * bandwidth);
        return { backward, count, link, full, last, waits: Math.max(0, free - backward), hides };
    };

    const count = value => value < 1e9 ? `${value / 1e6} million` : `${value / 1e9} billion`;
    const commas = value => value.toLocaleString("en");
    const rounded = bytes => `${bytes < 1e9 ? bytes / 1e6 : bytes / 1e9} ${bytes < 1e9 ? "MB" : "GB"}`;
    const all = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072];
    const controls = {
        tokens: { label: "tokens per rank <i>K</i>", values: all, start: 8192, words: commas },
        bandwidth: { label: "bandwidth β", values: [1.25, 2.5, 5, 12.5, 25, 50, 100, 200, 450].map(n => n * 1e9), start: 5e10,
                     words: n => `${n / 1e9} GB/s` },
        bucket: { label: "bucket", values: [1, 2, 5, 10, 25, 50, 100, 200, 500, 1000, 2000, 5000].map(n => n * 1e6), start: 1e8,
                  words: (n, { parameters }) => n < gradient * parameters ? rounded(n) : "all in one" },
        latency: { label: "latency α", values: [0, 1, 3.4, 14, 24, 50, 100].map(n => n / 1e6), start: 14 / 1e6,
                   words: n => n === 0 ? "none" : seconds(n) },
        ranks: { label: "ranks <i>n</i>", values: [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], start: 16, words: commas },
        flops: { label: "device <i>F</i>", values: [50, 100, 200, 400, 800, 1600].map(n => n * 1e12), start: 4e14,
                 words: n => `${commas(n / 1e12)} TFLOP/s` },
        parameters: { label: "parameters Ψ", values: [0.1, 0.3, 1, 3, 7, 13, 30, 70].map(n => n * 1e9), start: 1e9, words: count },
    };
    // The share of the pass and the wait together that is waiting.
    const share = ({ backward, waits }) => waits / (backward + waits);
    const percent = share => `${Number((100 * share).toFixed(share < 0.1 ? 1 : 0))}%`;

    // The rank's and the link's time, to one scale.
    function timeline(values, step, width) {
        const [left, right, top] = [44, width - 2, 44];
        const end = step.backward + step.waits;
        const x = time => left + (right - left) * time / end;
        const box = (from, to, y, colour) => `<rect x="${x(from).toFixed(2)}" y="${y}" width="${(x(to) - x(from)).toFixed(2)}"
            height="26" ${tinted(colour)}/>`;
        let body = `<rect x="0" y="1" width="15" height="14" ${tinted(passes.backward)}/>`
            + text(21, 13, "start", "backward") + `<rect x="94" y="1" width="15" height="14" ${tinted(passes.link)}/>` + text(115, 13, "start", "all-reduce")
            + area(192, 1, 15, 14, "url(#waits)") + frame(192, 1, 15, 14, "currentColor", 1) + text(213, 13, "start", "waits");
        body += text(0, top + 18, "start", "rank") + text(0, top + 54, "start", "link");
        body += box(0, step.backward, top, passes.backward);
        body += area(x(step.backward), top, right - x(step.backward), 26, "url(#waits)");
        // Where a bucket's gradients are complete; and its all-reduce. Those that touch and are too thin to see are one box.
        let [boxes, marks, begin, over] = ["", "", -1, -1];
        const gap = (right - left) / step.count > 4 ? 1 : 0;
        const draw = () => boxes += begin < 0 ? "" : `<rect x="${x(begin).toFixed(2)}" y="${top + 36}" height="26"
            width="${Math.max(0.5, x(over) - x(begin) - gap).toFixed(2)}" ${tinted(passes.link)}/>`;
        let number = 0;
        shardlab.exposed(values, (start, end) => {
            number++;
            if (step.count <= 60 && number < step.count) {
                const at = x(step.backward * Math.min(1, number * values.bucket / gradient / values.parameters));
                marks += `<path d="M${at.toFixed(1)} ${top} v26" stroke="currentColor"/>`;
            }
            if (!gap && x(start) - x(over) < 0.5 && begin >= 0) return void (over = end);
            draw();
            [begin, over] = [start, end];
        });
        draw();
        const ends = x(step.backward);
        const words = seconds(step.backward);
        body += marks + boxes + `<path d="M${ends} ${top - 5} V${top + 66}" stroke="currentColor" stroke-width="1.5"/>`;
        body += text(Math.max(left + 4 * words.length, Math.min(ends, right - 4 * words.length)), top - 10, "middle", words);
        return [body, top + 70];
    }

    // The exposed share against the tokens of a rank, and the formula's tokens.
    function curve(values, step, width, top) {
        const [left, right, bottom] = [44, width - 24, top + 150];
        const [low, high] = [all[0], all.at(-1)];
        const x = tokens => left + (right - left) * Math.log2(tokens / low) / Math.log2(high / low);
        const y = share => bottom - (bottom - top - 20) * share;
        let body = text(0, top + 4, "start", "share of the time in which the rank waits");
        for (const part of [0, 0.5, 1]) {
            body += `<path d="M${left} ${y(part)} H${right}" stroke="currentColor" stroke-opacity="0.2"/>`
                + text(left - 6, y(part) + 4, "end", `${100 * part}%`);
        }
        for (const tokens of [256, 2048, 16384, 131072]) body += text(x(tokens), bottom + 17, "middle", commas(tokens));
        const points = Array.from({ length: 37 }, (_, i) => low * 2 ** (i / 4));
        const at = tokens => share(shardlab.exposed({ ...values, tokens }));
        const line = points.map(tokens => `${x(tokens).toFixed(1)},${y(at(tokens)).toFixed(1)}`).join(" ");
        body += `<polyline points="${line}" fill="none" stroke="${passes.link}" stroke-width="2.5"/>`;
        if (step.hides > low && step.hides < high) {
            const [place, words] = [x(step.hides), `formula: ${commas(Math.round(step.hides))}`];
            // Right of the line the curve is low. At the right end there is no room.
            const room = place + 7 * words.length < width;
            body += `<path d="M${place} ${top + 12} V${bottom}" stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 4"/>`
                + text(place + (room ? 6 : -6), room ? top + 36 : bottom - 8, room ? "start" : "end", words);
        }
        body += `<circle cx="${x(values.tokens)}" cy="${y(share(step))}" r="5.5" fill="${passes.link}" stroke="currentColor"
            stroke-width="1.5"/>` + text((left + right) / 2, bottom + 34, "middle", "tokens per rank and step, K");
        return [body, bottom + 40];
    }

    function draw(values, width) {
        const step = shardlab.exposed(values);
        const [time, middle] = timeline(values, step, width);
        const [graph, bottom] = curve(values, step, width, middle + 24);
        const keepsUp = step.waits <= step.full * (1 + 1e-9);
        const many = step.count === 1 ? "1 bucket" : `${commas(step.count)} buckets`;
        const waits = `After a backward pass of ${seconds(step.backward)} the rank waits ${seconds(step.waits)}`;
        const why = step.count === 1 ? "Nothing is hidden: the only bucket is complete when the pass ends."
            : keepsUp ? "That is no more than one bucket: the link keeps up."
            : values.tokens < step.hides ? `The link does not keep up. The formula asks for ${commas(Math.ceil(step.hides))} tokens.`
            : "By the formula the link keeps up. What it leaves out, the latency of each bucket, is the rest.";
        const said = `${many}. ${waits}, ${percent(share(step))} of both together. ${why}`;
        const rows = [[many, seconds(step.backward), seconds(step.link), seconds(step.waits)]];
        const below = table(["gradients", "backward", "on the link", "exposed"], rows);
        return { said, picture: svg(width, bottom, `Backward pass and link. ${said}`, hatched + time + graph) + below };
    }

    shardlab.live("exposed", controls, draw);
}

// A training with one bad batch, and AdamW, which remembers it: the loss, and the root of Adam's second moment.
{
    const { curves, svg, table, text, three } = shardlab;
    const [count, steps, bad, rate, limit] = [16, 1000, 200, 0.01, 1];
    const ways = ["trained on", "clipped", "skipped"];

    // Noise between -0.5 and 0.5, the same as the library's (labs/tools/book/noise.rs).
    function noise(number) {
        let x = Math.imul(number, 0x9E3779B1) >>> 0;
        x = Math.imul(x ^ x >>> 15, 0x85EBCA6B) >>> 0;
        return ((x ^ x >>> 13) >>> 0) / 2 ** 32 - 0.5;
    }

    // Weights that begin at 0 learn to be 1. For each step the loss before it, the size of its gradient, and the root of
    // the mean second moment after it.
    shardlab.badBatch = ({ times, done, beta2 }) => {
        const [w, m, v] = [0, 0, 0].map(() => Array(count).fill(0));
        const [losses, sizes, roots] = [[], [], []];
        const size = numbers => Math.sqrt(numbers.reduce((sum, number) => sum + number * number, 0));
        let updates = 0;
        for (let step = 1; step <= steps; step++) {
            losses.push(size(w.map(w => w - 1)) ** 2 / (2 * count));
            const factor = step === bad ? times : 1;
            const gradient = w.map((w, i) => factor * (w - 1 - 0.7 * noise(step * count + i + 1)));
            const norm = size(gradient);
            sizes.push(norm / Math.sqrt(count));
            if (step !== bad || done !== "skipped") {
                updates++;
                const scale = done === "clipped" ? Math.min(1, limit / (norm + 1e-6)) : 1;
                for (let i = 0; i < count; i++) {
                    const g = scale * gradient[i];
                    m[i] = 0.9 * m[i] + 0.1 * g;
                    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                    w[i] -= rate * (m[i] / (1 - 0.9 ** updates)) / (Math.sqrt(v[i] / (1 - beta2 ** updates)) + 1e-8);
                }
            }
            roots.push(Math.sqrt(v.reduce((sum, v) => sum + v, 0) / count / (1 - beta2 ** updates)));
        }
        return { losses, sizes, roots };
    };

    const commas = number => number.toLocaleString("en");
    const controls = {
        times: { label: "gradient", values: [1, 3, 10, 30, 100, 300, 1000], start: 1000, words: n => `× ${commas(n)}` },
        beta2: { label: "Adam's β₂", values: [0.9, 0.95, 0.99, 0.999], start: 0.99 },
        done: { label: "the bad batch is", values: ways, start: "trained on", list: true },
    };

    // A run beside one without a bad batch: how far its numbers are above, at most, and for how many steps by a quarter.
    function beside(values) {
        const [run, good] = [values, { ...values, times: 1, done: values.done === "clipped" ? "clipped" : "trained on" }].map(shardlab.badBatch);
        const above = (numbers, others, from) => {
            const ratios = numbers.slice(from).map((number, i) => number / others[from + i]);
            const most = Math.max(...ratios);
            return { most, at: ratios.indexOf(most) + 1, back: ratios.findLastIndex(ratio => ratio > 1.25) + 1 };
        };
        return { run, good, loss: above(run.losses, good.losses, bad), root: above(run.roots, good.roots, bad - 1) };
    }

    // Curves over the steps with a logarithmic axis from 10^low to 10^high.
    function panel(name, width, top, height, [low, high], lines) {
        const [left, right, bottom] = [46, width - 22, top + height];
        const x = step => left + (right - left) * step / steps;
        const y = value => Math.min(bottom, Math.max(top, bottom - height * (Math.log10(value) - low) / (high - low)));
        let body = text(0, top - 12, "start", name);
        for (let power = low; power <= high; power++) {
            body += `<path d="M${left} ${y(10 ** power)} H${right}" stroke="currentColor" stroke-opacity="0.2"/>`
                + text(left - 6, y(10 ** power) + 4, "end", power < 3 ? 10 ** power : commas(10 ** power));
        }
        for (const step of [0, 200, 400, 600, 800, 1000]) body += text(x(step), bottom + 17, "middle", commas(step));
        for (const [numbers, look] of lines) {
            const points = numbers.map((number, i) => `${x(i + 1).toFixed(1)},${y(number).toFixed(1)}`).join(" ");
            body += `<polyline points="${points}" fill="none" ${look}/>`;
        }
        return body;
    }

    const howLong = back => back >= steps - bad ? `> ${steps - bad} steps` : back === 0 ? "at once" : back === 1 ? "1 step" : `${back} steps`;

    function draw(values, width) {
        const all = Object.fromEntries(ways.map(done => [done, beside({ ...values, done })]));
        const { run, good, loss, root } = all[values.done];
        const kinds = [["loss", curves[1]], ["√v", curves[0]], ["gradient", curves[3]], ["without the bad batch", "currentColor"]];
        let [body, x, y] = ["", 0, 0];
        for (const [name, colour] of kinds) {
            if (x + 24 + 7 * name.length > width) [x, y] = [0, y + 20];
            const dashes = colour === "currentColor" ? 'stroke-dasharray="4 3"' : "";
            body += `<path d="M${x} ${y + 8} h18" stroke="${colour}" stroke-width="2.5" ${dashes}/>` + text(x + 23, y + 13, "start", name);
            x += 38 + 7 * name.length;
        }
        const top = y + 46;
        const dashed = 'stroke="currentColor" stroke-width="1.2" stroke-dasharray="4 3"';
        const line = colour => `stroke="${colour}" stroke-width="2"`;
        body += panel("loss, of all data", width, top, 130, [-4, 0], [[run.losses, line(curves[1])], [good.losses, dashed]]);
        body += panel("gradient, and √v, which divides it", width, top + 190, 110, [-1, 3],
            [[run.sizes, `stroke="${curves[3]}" stroke-width="1.2"`], [run.roots, line(curves[0])], [good.roots, dashed]]);
        body += text(width / 2, top + 336, "middle", "step");
        const rows = ways.map(done => [done, `× ${three(all[done].loss.most)}`, howLong(all[done].loss.back), howLong(all[done].root.back)]);
        const heads = ["the bad batch is", "loss, at most", "loss is back", "√v is back"];
        const words = times => times < 1.1 ? "stays as it was" : `is ${three(times)} times as high`;
        const right = run.losses[bad] / good.losses[bad];
        const after = loss.back === 0 ? "The loss stays as without it."
            : `Right after it the loss is ${three(right)} times that of the run without it, and ${loss.at} steps after it ${three(loss.most)} times. `
                + `${loss.back >= steps - bad ? "It is not back by the end" : `It is back after ${howLong(loss.back)}`}.`;
        const said = `Step ${bad} has a gradient ${values.times === 1 ? "like any other" : `${commas(values.times)} times too large`} and is ${values.done}: √v ${words(root.most)}. ${after}`;
        return { said, picture: svg(width, top + 344, `Loss and second moment. ${said}`, body) + table(heads, rows, ways.indexOf(values.done)) };
    }

    shardlab.live("bad-batch", controls, draw);
}

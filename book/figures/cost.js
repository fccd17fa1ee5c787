// The cost of an all-reduce by the alpha-beta model, for four algorithms. A link carries one message at a time in each
// direction, so rank 0 of the naive algorithm handles its messages one after the other.
{
    const { area, curves, seconds, svg, table, text, three } = shardlab;
    const bytes = value => shardlab.bytes(value, 1024);

    // Messages one after the other on the slowest rank: how many, and how many times S bytes they carry. If n is no
    // power of two, recursive doubling and Rabenseifner's algorithm run on the next lower one, p. The other ranks hand
    // in their numbers before and get the sums afterwards: two more rounds of S.
    const algorithms = {
        "naive": n => [2 * (n - 1), 2 * (n - 1)],
        "ring": n => [2 * (n - 1), 2 * (n - 1) / n],
        "recursive-doubling"(n) {
            const halvings = Math.floor(Math.log2(n));
            const extra = 2 ** halvings === n ? 0 : 2;
            return [halvings + extra, halvings + extra];
        },
        "rabenseifner"(n) {
            const halvings = Math.floor(Math.log2(n));
            const [p, extra] = [2 ** halvings, 2 ** halvings === n ? 0 : 2];
            return [2 * halvings + extra, 2 * (p - 1) / p + extra];
        },
    };
    const names = Object.keys(algorithms);
    shardlab.cost = (name, { ranks, size, latency, bandwidth }) => {
        const [rounds, amount] = algorithms[name](ranks);
        const knee = rounds * latency * bandwidth / amount;
        return { rounds, amount, seconds: rounds * latency + amount * size / bandwidth, knee };
    };

    const sizes = Array.from({ length: 25 }, (_, i) => 2 ** (i + 6));
    const microseconds = [0.5, 1, 2, 3.4, 5.7, 10, 14, 24, 50, 100, 200, 500, 1000].map(each => each / 1e6);
    const gigabytes = [0.1, 0.25, 0.5, 1, 1.25, 2.5, 5, 10, 15, 25, 50, 100, 200, 300, 450, 900].map(n => n * 1e9);
    const ranks = [2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 4096, 8192];
    const controls = {
        ranks: { label: "ranks", values: ranks, start: 4, words: n => n.toLocaleString("en") },
        size: { label: "array S", values: sizes, start: 65536, words: bytes },
        latency: { label: "latency α", values: microseconds, start: 24e-6, words: seconds },
        bandwidth: { label: "bandwidth β", values: gigabytes, start: 1.25e9, words: n => `${shardlab.bytes(n)}/s` },
    };
    // Without zeros at the end: 1.00 KiB is 1 KiB.
    const short = words => words.replace(/\.0+ /, " ");
    const dashes = ["none", "7 3", "2 3", "8 3 2 3"];
    const stroke = i => `stroke="${curves[i]}" stroke-width="2" stroke-dasharray="${dashes[i]}"`;

    function draw(values, width) {
        const [left, right, top, bottom] = [56, width - 8, 8, 250];
        const at = size => names.map(name => shardlab.cost(name, { ...values, size }).seconds);
        const fastest = size => at(size).indexOf(Math.min(...at(size)));
        const [small, large] = [sizes[0], sizes.at(-1)];
        // Whole decades, so that the axis stands still while a slider moves a little. Longer times leave the picture.
        const low = Math.floor(Math.log10(Math.min(...at(small))));
        const high = Math.min(3, Math.ceil(Math.log10(Math.max(...at(large)))));
        const x = size => left + (right - left) * Math.log2(size / small) / Math.log2(large / small);
        const y = time => bottom - (bottom - top) * (Math.log10(time) - low) / (high - low);

        let body = "";
        const every = Math.ceil((high - low) / 6);
        for (let power = low; power <= high; power += every) {
            const place = y(10 ** power);
            body += `<path d="M${left} ${place} H${right}" stroke="currentColor" stroke-opacity="0.15"/>`;
            const label = power < 2 ? short(seconds(10 ** power)) : `${(10 ** power).toLocaleString("en")} s`;
            body += text(left - 6, place + 4, "end", label);
        }
        for (const size of [2 ** 10, 2 ** 15, 2 ** 20, 2 ** 25]) {
            body += `<path d="M${x(size)} ${top} V${bottom}" stroke="currentColor" stroke-opacity="0.15"/>`;
            body += text(x(size), bottom + 17, "middle", short(bytes(size)));
        }
        names.forEach((name, i) => {
            const points = sizes.map(size => `${x(size).toFixed(1)},${y(at(size)[i]).toFixed(1)}`);
            body += `<polyline points="${points.join(" ")}" fill="none" ${stroke(i)}/>`;
            const { knee } = shardlab.cost(name, values);
            if (knee < small || knee > large) return;
            body += `<circle cx="${x(knee)}" cy="${y(at(knee)[i])}" r="4.5" fill="${curves[i]}"/>`;
        });
        // The chosen size, and below the axis who is the fastest at each size.
        body += `<path d="M${x(values.size)} ${top} V${bottom}" stroke="currentColor" stroke-width="1.5"/>
            <path d="M${x(values.size)} ${bottom + 49} l-5 8 h10 Z"/>`;
        for (let from = small; from < large;) {
            let to = from;
            while (to < large && fastest(to) === fastest(from)) to *= 2 ** 0.125;
            const [i, begin, end] = [fastest(from), x(from), Math.min(x(to), right)];
            body += `<g fill-opacity="0.3">${area(begin, bottom + 26, end - begin, 20, curves[i])}</g>`;
            body += area(begin, bottom + 44, end - begin, 3, curves[i]);
            const name = names[i].replace("recursive-", "");
            if (end - begin > 8 * name.length) body += text((begin + end) / 2, bottom + 41, "middle", name);
            from = to;
        }
        body += text(left - 6, bottom + 41, "end", "fastest");

        const best = fastest(values.size);
        const rows = names.map((name, i) => {
            const { rounds, amount, seconds: time } = shardlab.cost(name, values);
            const line = `<svg width="26" height="10" aria-hidden="true"><path d="M0 5 H26" ${stroke(i)}/></svg>`;
            const model = `<span>${rounds.toLocaleString("en")} α +</span> <span>${three(amount)} S/β</span>`;
            return [`${line} ${name}`, `<div>${model}</div>`, seconds(time)];
        });
        const { rounds, seconds: time } = shardlab.cost(names[best], values);
        const [size, ranks] = [bytes(values.size), controls.ranks.words(values.ranks)];
        const share = Math.round(100 * rounds * values.latency / time);
        const said = `${size} on ${ranks} ranks: ${names[best]} is the fastest. ` +
            `It takes ${seconds(time)}, and ${share}% of that is latency.`;
        const title = `Time of one all-reduce against the size of the array, both axes logarithmic. ${said}`;
        const below = table(["algorithm", "time", `at ${size}`], rows, best);
        return { said, picture: svg(width, bottom + 58, title, body) + below };
    }

    shardlab.live("cost", controls, draw);
}

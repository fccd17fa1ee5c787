// The explorer of pipeline schedules. Every rank's order is data that the library wrote (labs/tools/book/schedules.rs says how).
// This script decodes the orders, plays them through and draws them. It knows no schedule.
{
    const { area, frame, passes, svg, table, text } = shardlab;
    const data = shardlab.data("schedule");
    const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const kinds = ["forward", "backward", "weights"].map(word => [word[0].toUpperCase(), word, passes[word]]);

    // Numbers in base 64. A digit holds 5 bits, the lowest first; 32 more says that one more digit follows.
    function unpacked(words) {
        const numbers = [];
        let [number, worth] = [0, 1];
        for (const letter of words) {
            const digit = digits.indexOf(letter);
            number += digit % 32 * worth;
            worth *= 32;
            if (digit >= 32) continue;
            numbers.push(number);
            [number, worth] = [0, 1];
        }
        return numbers;
    }

    // What each pass of one micro-batch needs: for each kind, rank and chunk a list of kinds, ranks and chunks.
    function needs(words, ranks, chunks) {
        const numbers = unpacked(words).values();
        const next = () => numbers.next().value;
        const list = (length, item) => Array.from({ length }, item);
        return list(3, () => list(ranks, () => list(chunks, () => list(next(), () => list(3, next)))));
    }

    // Starts each pass when those that it needs are over, and the one before it on its rank. A forward pass of a chunk takes 1.
    function play(rows, ratio) {
        const halved = rows[0].some(pass => pass.kind === 2);
        const left = rows.map(row => [...row]);
        let ran = true;
        while (ran) {
            ran = false;
            for (const row of left) {
                while (row[0]?.needs.every(need => need.end)) {
                    const pass = row.shift();
                    const before = rows[pass.rank][pass.at - 1]?.end ?? 0;
                    pass.start = Math.max(before, ...pass.needs.map(need => need.end));
                    pass.end = pass.start + (pass.kind === 0 ? 1 : halved ? ratio / 2 : ratio);
                    ran = true;
                }
            }
        }
    }

    // As the library rounds: a half to the even tenth.
    function percent(share) {
        const [tenths, down] = [1000 * share, Math.floor(1000 * share)];
        const rounded = tenths - down === 0.5 ? down + down % 2 : Math.round(tenths);
        return `${(rounded / 10).toFixed(1)}%`;
    }

    // One case: each rank's passes, with their times and what each one waits for; or why the schedule refuses it.
    shardlab.schedule = ({ schedule, ranks, chunks, micro, ratio }) => {
        const place = [["names", schedule], ["ranks", ranks], ["chunks", chunks], ["micro", micro]];
        const index = place.reduce((at, [name, value]) => at * data[name].length + data[name].indexOf(value), 0);
        const found = data.cases[index];
        if (typeof found === "number") return { refusal: data.refusals[found] };
        const rows = unpacked(found).map((number, rank) => unpacked(data.orders[number]).map((n, at) =>
            ({ rank, at, kind: n % 3, chunk: Math.floor(n / 3) % chunks, micro: Math.floor(n / 3 / chunks) })));
        const named = new Map(rows.flat().map(pass => [`${[pass.kind, pass.rank, pass.chunk, pass.micro]}`, pass]));
        const shape = data.ranks.indexOf(ranks) * data.chunks.length + data.chunks.indexOf(chunks);
        const needed = needs(data.needs[shape], ranks, chunks);
        for (const pass of named.values()) {
            const others = needed[pass.kind][pass.rank][pass.chunk];
            pass.needs = others.map(other => named.get(`${[...other, pass.micro]}`));
        }
        play(rows, ratio);
        const busy = Math.max(...rows.map(row => row.reduce((sum, pass) => sum + pass.end - pass.start, 0)));
        const makespan = Math.max(...rows.map(row => row.at(-1).end));
        for (const pass of rows.flat().filter(pass => pass.kind === 0)) {
            // Activations are kept until the last pass that uses them is over.
            const [backward, weights] = [1, 2].map(kind => named.get(`${[kind, pass.rank, pass.chunk, pass.micro]}`));
            pass.kept = (weights ?? backward).end;
        }
        const moments = [...new Set(rows.flat().flatMap(pass => [pass.start, pass.end]))].sort((a, b) => a - b);
        const peaks = rows.map(row => Math.max(...row.map(pass => shardlab.kept(row, pass.start))));
        const [ofStep, ofWork] = [makespan, busy].map(whole => percent((makespan - busy) / whole));
        return { rows, peaks, makespan, busy, ofStep, ofWork, moments };
    };
    let last = {};
    function chosen(values) {
        const key = JSON.stringify({ ...values, time: 0 });
        if (last.key !== key) last = { key, found: shardlab.schedule(values) };
        return last.found;
    }

    // The chunks whose activations a rank holds at a time.
    shardlab.kept = (row, time) => row.filter(pass => pass.start <= time && pass.kept > time).length;

    // Times in forward passes of a whole rank, that is of all its chunks.
    const inPasses = (units, { chunks }) => Number((units / chunks).toFixed(2)).toLocaleString("en");
    const name = ({ kind, chunk, micro }, { chunks }) => `${kinds[kind][0]}${chunks > 1 ? `${chunk}.` : ""}${micro}`;

    // The passes that a pass waits for: those that it needs, and the one before it on its rank.
    function waits(pass, { rows }) {
        const before = rows[pass.rank][pass.at - 1];
        return { needs: pass.needs, before: before && !pass.needs.includes(before) ? before : undefined };
    }

    function inWords(pass, found, values) {
        const { needs, before } = waits(pass, found);
        const who = `${name(pass, values)} on rank ${pass.rank}`;
        const list = needs.map(need => need.rank === pass.rank ? `for its own ${name(need, values)}`
            : `for ${name(need, values)} of rank ${need.rank}`);
        if (before) list.push(`for rank ${pass.rank} itself to finish ${name(before, values)}`);
        if (list.length === 0) return `${who} waits for nothing. It starts at once.`;
        const all = list.length === 1 ? list[0] : `${list.slice(0, -1).join(", ")}, and ${list.at(-1)}`;
        const idle = pass.start - (found.rows[pass.rank][pass.at - 1]?.end ?? 0);
        const after = idle > 0 ? ` Rank ${pass.rank} is idle for ${inPasses(idle, values)} before it.` : "";
        return `${who} waits ${all}. It starts at ${inPasses(pass.start, values)}.${after}`;
    }

    function now(time, { rows, makespan }, values) {
        const does = rows.map((row, rank) => {
            const runs = row.find(pass => pass.start <= time && time < pass.end);
            return `rank ${rank} ${runs ? `runs ${name(runs, values)}` : "is idle"}`;
        });
        const what = time === makespan ? "the step is over" : does.join(", ");
        return `Time ${inPasses(time, values)} of ${inPasses(makespan, values)}: ${what}.`;
    }

    const hatched = `<pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path d="M0 0 V6" stroke="currentColor" stroke-opacity="0.35" stroke-width="2"/></pattern>`;
    // A chunk's shade: the first chunk is the darkest.
    const shade = (chunk, chunks) => chunks === 1 ? 0.5 : 0.75 - 0.5 * chunk / (chunks - 1);

    function cell(kind, from, to, y, height, shade) {
        const wide = to - from - Math.min(1, (to - from) / 8);
        return `<rect x="${from.toFixed(2)}" y="${y}" width="${wide.toFixed(2)}" height="${height}"
            fill="${kinds[kind][2]}" fill-opacity="${shade.toFixed(2)}"/>`;
    }

    // The kinds of passes that occur, and the chunks' shades; and where the next line begins.
    function legend({ rows }, { chunks }, width) {
        let [body, x, y] = ["", 0, 2];
        const add = (swatch, words) => {
            const wide = 32 + 7 * words.length;
            if (x + wide > width) [x, y] = [0, y + 22];
            body += swatch(x, y) + text(x + 22, y + 12, "start", words);
            x += wide;
        };
        kinds.forEach(([letter, words], kind) => {
            if (!rows[0].some(pass => pass.kind === kind)) return;
            add((x, y) => cell(kind, x, x + 17, y, 14, 0.5), `${letter} ${words}`);
        });
        add((x, y) => area(x, y, 16, 14, "url(#idle)"), "bubble");
        for (let chunk = 0; chunks > 1 && chunk < chunks; chunk++) {
            const half = (kind, x, y) => cell(kind, x, x + 9, y, 14, shade(chunk, chunks));
            add((x, y) => half(0, x, y) + half(1, x + 8, y), `chunk ${chunk}`);
        }
        return [body, y + 32];
    }

    // A row's passes, each with its letter and its micro-batch as far as there is room, and its waits.
    function gantt(row, rank, { makespan }, { chunks, micro }, { x, y, left, right }) {
        const long = 6.3 * String(micro - 1).length;
        const label = pass => {
            const wide = x(pass.end) - x(pass.start);
            if (wide < long + 0.5) return "";
            const letter = wide > long + 9 ? kinds[pass.kind][0] : "";
            return text((x(pass.start) + wide / 2).toFixed(1), y(rank) + 16, "middle", letter + pass.micro);
        };
        let [body, letters, free] = [area(left, y(rank), right - left, 24, "transparent"), "", 0];
        const wait = (from, to) => from < to ? area(x(from), y(rank), x(to) - x(from), 24, "url(#idle)") : "";
        for (const pass of row) {
            body += wait(free, pass.start);
            body += cell(pass.kind, x(pass.start), x(pass.end), y(rank), 24, shade(pass.chunk, chunks));
            letters += label(pass);
            free = pass.end;
        }
        body += `${wait(free, makespan)}<g font-size="11" pointer-events="none">${letters}</g>`;
        return `<g data-rank="${rank}">${body}</g>`;
    }

    // Outlines a pass and those that it waits for, with an arrow from each one on a different rank.
    function outlines(pass, found, { x, y }) {
        const outline = ({ rank, start, end }, line, dashes) => `<rect x="${x(start)}" y="${y(rank)}" fill="none"
            width="${x(end) - x(start)}" height="24" stroke="currentColor" stroke-width="${line}" stroke-dasharray="${dashes}"/>`;
        const { needs, before } = waits(pass, found);
        const arrows = needs.filter(need => need.rank !== pass.rank).map(need => {
            const down = Math.sign(pass.rank - need.rank);
            const [toX, toY] = [x(pass.start) + 5, y(pass.rank) + 12 - 4 * down];
            return `<path d="M${x(need.end) - 4} ${y(need.rank) + 12 + 10 * down} L${toX} ${toY}" stroke="currentColor"
                stroke-width="2"/><path d="M${toX} ${toY} l-5 ${-7 * down} h10 Z"/>`;
        });
        const needed = needs.map(need => outline(need, 2, "none"));
        return [...arrows, ...needed, before ? outline(before, 2, "3 2") : "", outline(pass, 3.5, "none")].join("");
    }

    // A step has two parts: the work, as if nothing waited, and the bubble.
    function parts({ makespan, busy }, values, { x }, y) {
        const part = (from, to, fill, words) => {
            const [wide, label] = [x(to) - x(from), words.find(words => x(to) - x(from) > 7 * words.length + 4)];
            return area(x(from), y, wide, 20, fill) + frame(x(from), y, wide, 20, "currentColor", 1)
                + (label ? text(x(from) + wide / 2, y + 14, "middle", label) : "");
        };
        const [work, bubble] = [busy, makespan - busy].map(units => inPasses(units, values));
        const idle = busy < makespan ? part(busy, makespan, "url(#idle)", [`bubble ${bubble}`, bubble]) : "";
        return part(0, busy, "none", [`work ${work}`]) + idle;
    }

    // The activations of each rank: a frame for the peak, filled as far as the rank holds them now.
    function activations({ rows, peaks }, time, y, left, width) {
        const wide = held => (width - 62 - left) * held / Math.max(...peaks);
        return rows.map((row, rank) => {
            const held = shardlab.kept(row, time);
            return `<g fill-opacity="0.5">${area(left, y(rank) + 4, wide(held), 16, passes.forward)}</g>`
                + frame(left, y(rank) + 4, wide(peaks[rank]), 16, "currentColor", 1)
                + text(width, y(rank) + 17, "end", `${held} of ${peaks[rank]}`);
        }).join("");
    }

    // A refusal names the lab's flags. The page has controls.
    shardlab.refusal = refusal => {
        const [what, help] = refusal.split("\n").map(line => line.replace(/\b1 micro-batches/g, "1 micro-batch"));
        const words = help.replace("help: ", "")
            .replace("give --schedule interleaved, or --chunks 1", "choose an interleaved schedule, or 1 chunk per rank")
            .replace(/--micro-batches (\d+), or (\d+)/, "choose $1 or $2 micro-batches")
            .replace(/--micro-batches (\d+)/, "choose $1 micro-batches");
        return [what, words].map(line => `${line[0].toUpperCase()}${line.slice(1)}.`);
    };

    function refused({ schedule, ranks }, refusal) {
        const words = shardlab.refusal(refusal).join("<br>");
        const picture = `<div class="refused" style="min-height: ${64 + 28 * ranks}px"><p>${words}</p></div>`;
        return { picture, said: `There is no such step: ${schedule} refuses this pipeline.` };
    }

    function draw(values, width, live) {
        const found = chosen(values);
        if (found.refusal) return refused(values, found.refusal);
        const { rows, peaks, makespan, busy, ofStep, ofWork, moments } = found;
        const time = moments[Math.min(values.time, moments.length - 1)];
        const pass = rows[live.dataset.rank]?.[live.dataset.at];

        // The activations are beside the passes, or below if there is no room.
        const narrow = width < 560;
        const side = narrow ? 0 : 150;
        const [left, right] = narrow ? [20, width - 1] : [50, width - side - 20];
        const [first, top] = legend(found, values, width - side);
        const x = units => left + (right - left) * units / makespan;
        const y = rank => top + 28 * rank;
        const view = { x, y, left, right };
        const bottom = y(rows.length) - 4;

        let body = `<defs>${hatched}</defs>${first}`;
        rows.forEach((row, rank) => {
            body += text(left - 6, y(rank) + 17, "end", narrow ? rank : `rank ${rank}`);
            body += gantt(row, rank, found, values, view);
        });
        // A veil covers later times, unless a pass is chosen.
        const veil = `<g class="later" fill-opacity="0.3">${area(x(time), top, right - x(time), bottom - top, "")}</g>`;
        body += `<g pointer-events="none">${pass ? outlines(pass, found, view) : veil}
            <path d="M${x(time)} ${top - 4} V${bottom + 4}" stroke="currentColor" stroke-width="1.5"/>
            <path d="M${x(time)} ${top - 1} l-5 -7 h10 Z"/></g>`;
        body += parts(found, values, view, bottom + 8);
        let [end, title] = [bottom + 30, "activations, now and peak"];
        if (narrow) {
            const below = rank => bottom + 57 + 24 * rank;
            body += text(0, bottom + 52, "start", title) + activations(found, time, below, 50, width);
            rows.forEach((_, rank) => body += text(0, below(rank) + 17, "start", `rank ${rank}`));
            end = below(rows.length);
        } else {
            body += text(width, top - 20, "end", title) + activations(found, time, y, width - side, width);
        }

        const heads = ["step", "work", "bubble", "bubble / step", "bubble / work", "peak"];
        const cells = [makespan, busy, makespan - busy].map(units => inPasses(units, values));
        const peak = Number((Math.max(...peaks) / values.chunks).toFixed(2));
        const units = "Times in forward passes of a rank; the peak in micro-batches.";
        const below = `${table(heads, [[...cells, ofStep, ofWork, peak]])}<small>${units}</small>`;
        title = `${values.schedule}: the passes of each rank in one step. The bubble is ${ofStep} of the step.`;
        const said = pass ? inWords(pass, found, values) : now(time, found, values);
        return { said, picture: svg(width, end, title, body) + below };
    }

    const controls = data && {
        schedule: { label: "schedule", values: data.names, start: "1f1b", list: true },
        ranks: { label: "stages", values: data.ranks, start: 4 },
        chunks: { label: "chunks per rank", values: data.chunks, start: 1 },
        micro: { label: "micro-batches", values: data.micro, start: 8 },
        ratio: { label: "backward pass", values: data.ratios, start: 2, words: ratio => `${ratio} × F` },
        time: { label: "time", values: [...Array(4096).keys()], start: 0, words(time, values) {
            const { moments } = chosen(values);
            return moments ? inPasses(moments[Math.min(time, moments.length - 1)], values) : "no step";
        }, stuck: values => chosen(values).refusal && "There is no step to move in." },
    };
    if (data) shardlab.live("schedule", controls, draw, (live, redraw, read) => {
        const [time, drawing] = [live.querySelector("[name=time]"), live.querySelector(".drawing")];
        const end = () => (chosen(read()).moments?.length ?? 1) - 1;
        const choose = pass => {
            if (!pass) return;
            Object.assign(live.dataset, { rank: pass.rank, at: pass.at });
            time.value = chosen(read()).moments.indexOf(pass.start);
            redraw();
        };
        time.max = end();
        time.value = Math.round(end() / 3);
        // Before the figure is drawn again: the slider has as many values as the step has moments.
        live.addEventListener("input", ({ target }) => {
            delete live.dataset.rank;
            if (target === time || chosen(read()).refusal) return;
            const part = time.value / (time.max || 1);
            time.max = end();
            time.value = Math.round(part * end());
        }, true);
        shardlab.player(live, time, 700);

        drawing.tabIndex = 0;
        drawing.setAttribute("role", "application");
        const label = "Passes. Arrow keys choose one. Enter goes to the last one that it waited for.";
        drawing.setAttribute("aria-label", label);
        drawing.addEventListener("click", event => {
            const row = event.target.closest("[data-rank]");
            if (!row) return;
            const { rows, makespan } = chosen(read());
            const { left, width } = row.firstElementChild.getBoundingClientRect();
            const time = (event.clientX - left) / width * makespan;
            choose(rows[row.dataset.rank].find(pass => time < pass.end));
        });
        drawing.addEventListener("keydown", event => {
            const found = chosen(read());
            if (found.refusal) return;
            const { rows, moments } = found;
            const pass = rows[live.dataset.rank]?.[live.dataset.at];
            const from = pass?.start ?? moments[time.value];
            const near = rank => rows[rank]?.find(other => other.end > from) ?? rows[rank]?.at(-1);
            const { needs, before } = pass ? waits(pass, found) : { needs: [] };
            const latest = [...needs, before].filter(other => other?.end === pass?.start)[0];
            const to = pass ? { ArrowRight: rows[pass.rank][pass.at + 1], ArrowLeft: rows[pass.rank][pass.at - 1],
                ArrowUp: near(pass.rank - 1), ArrowDown: near(pass.rank + 1), Enter: latest }
                : { ArrowRight: near(0), ArrowLeft: near(0), ArrowUp: near(rows.length - 1), ArrowDown: near(0) };
            if (!(event.key in to)) return;
            event.preventDefault();
            choose(to[event.key]);
        });
    });
}

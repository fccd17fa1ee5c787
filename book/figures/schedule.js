// The explorer of pipeline schedules. Every case is data that the library wrote (src/book/schedules.rs says how). This
// script decodes and draws it, and computes no schedule.
{
    const { area, colours, frame, svg, table, text } = shardlab;
    const source = document.querySelector('figure[data-figure="schedule"] > script[type="application/json"]');
    const data = JSON.parse(source?.textContent ?? "null");
    const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // Letter, word, colour, and how strong the colour is.
    const [pink, green] = [colours[2], colours[3]];
    const kinds = [["F", "forward", pink, 1], ["B", "backward", green, 1], ["W", "weights", green, 0.4]];

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

    // One case: each rank's passes, with their times and what each one waits for; or why the schedule refuses it.
    shardlab.schedule = ({ schedule, ranks, chunks, micro, ratio }) => {
        const place = [["names", schedule], ["ranks", ranks], ["chunks", chunks], ["micro", micro]];
        const index = place.reduce((at, [name, value]) => at * data[name].length + data[name].indexOf(value), 0);
        const found = data.cases[index];
        if (typeof found === "number") return { refusal: data.refusals[found] };
        const numbers = unpacked(found);
        const take = count => numbers.splice(0, count);
        const [orders, peaks] = [take(ranks), take(ranks)];
        take(data.ratios.indexOf(ratio) * (4 + ranks));
        const [makespan, busy, ...tenths] = take(4);
        const [ofStep, ofWork] = tenths.map(tenths => `${(tenths / 10).toFixed(1)}%`);
        const gaps = take(ranks);
        const rows = orders.map((number, rank) => {
            const order = unpacked(data.orders[number]);
            const waits = unpacked(data.gaps[gaps[rank]]);
            const took = data.took[order.some(n => n % 3 === 2) ? 1 : 0][data.ratios.indexOf(ratio)];
            let free = 0;
            return order.map((n, at) => {
                const [kind, chunk, micro] = [n % 3, Math.floor(n / 3) % chunks, Math.floor(n / 3 / chunks)];
                if (waits[0] === 0) free += waits.splice(0, 2)[1];
                waits[0]--;
                const start = free;
                free += took[kind];
                return { rank, at, kind, chunk, micro, start, end: free };
            });
        });
        const named = new Map(rows.flat().map(pass => [`${[pass.kind, pass.rank, pass.chunk, pass.micro]}`, pass]));
        const shape = data.ranks.indexOf(ranks) * data.chunks.length + data.chunks.indexOf(chunks);
        const needed = needs(data.needs[shape], ranks, chunks);
        for (const pass of named.values()) {
            const others = needed[pass.kind][pass.rank][pass.chunk];
            pass.needs = others.map(other => named.get(`${[...other, pass.micro]}`));
            // Activations are kept until the last pass that uses them is over.
            const [backward, weights] = [1, 2].map(kind => named.get(`${[kind, pass.rank, pass.chunk, pass.micro]}`));
            if (pass.kind === 0) pass.kept = (weights ?? backward).end;
        }
        const moments = [...new Set(rows.flat().flatMap(pass => [pass.start, pass.end]))].sort((a, b) => a - b);
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
    const inPasses = (units, { chunks }) => Number((units / (data.units[0] * chunks)).toFixed(2)).toLocaleString("en");
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

    function draw(values, width, live) {
        const found = chosen(values);
        if (found.refusal) {
            const [what, help] = found.refusal.split("\n");
            const height = 64 + 28 * values.ranks;
            const flags = help.replace(/--\S+( \w+)?/g, "<code>$&</code>");
            return { picture: `<div class="refused" style="min-height:${height}px"><p>${what}<br>${flags}</p></div>`,
                     said: `There is no such step: ${values.schedule} refuses this pipeline.` };
        }
        const { rows, peaks, makespan, busy, ofStep, ofWork, moments } = found;
        const { chunks, ranks } = values;
        const time = moments[Math.min(values.time, moments.length - 1)];
        const pass = rows[live.dataset.rank]?.[live.dataset.at];
        const { needs, before } = pass ? waits(pass, found) : { needs: [] };

        const narrow = width < 560;
        const [left, side, row] = [narrow ? 20 : 50, narrow ? 0 : 150, 28];
        const right = width - (side ? side + 20 : 1);
        const x = units => left + (right - left) * units / makespan;
        const used = kinds.filter((_, kind) => rows[0].some(pass => pass.kind === kind));

        let [body, at, top] = [`<defs>${hatched}</defs>`, 0, 2];
        const legend = (swatch, words) => {
            const wide = 32 + 7 * words.length;
            if (at + wide > width - side) [at, top] = [0, top + 22];
            body += swatch(at, top) + text(at + 22, top + 12, "start", words);
            at += wide;
        };
        const cell = (kind, from, to, y, height, shade) => {
            const [, , colour, faint] = kinds[kind];
            const wide = to - from - Math.min(1, (to - from) / 8);
            // The weights' half of a backward pass is fainter, with an outline as far as there is room.
            const line = faint < 1 && wide > 3 ? `stroke="${colour}" stroke-width="1"` : "";
            const [inset, less] = line ? [0.5, 1] : [0, 0];
            return `<rect x="${(from + inset).toFixed(2)}" y="${y + inset}" width="${(wide - less).toFixed(2)}"
                height="${height - less}" fill="${colour}" fill-opacity="${(faint * shade).toFixed(2)}" ${line}/>`;
        };
        used.forEach(([letter, words], kind) => {
            legend((at, y) => cell(kind, at, at + 17, y, 14, 0.5), `${letter} ${words}`);
        });
        legend((at, y) => area(at, y, 16, 14, "url(#idle)"), "bubble");
        for (let chunk = 0; chunks > 1 && chunk < chunks; chunk++) {
            const half = (kind, at, y) => cell(kind, at, at + 9, y, 14, shade(chunk, chunks));
            legend((at, y) => half(0, at, y) + half(1, at + 8, y), `chunk ${chunk}`);
        }
        const kept = "activations, now and peak";
        if (side) body += text(width, top + 12, "end", kept);
        top += 32;

        // A pass has its letter and its micro-batch in it, as far as there is room.
        const room = used.map(([letter], kind) => {
            const any = rows[0].find(pass => pass.kind === kind);
            const [wide, long] = [x(any.end) - x(any.start), String(values.micro - 1).length];
            return wide > 6.3 * long + 9 ? letter : wide > 6.3 * long + 0.5 ? "" : undefined;
        });
        const middle = rank => top + row * rank + 12;
        rows.forEach((passes, rank) => {
            const y = top + row * rank;
            let [cells, letters] = ["", ""];
            for (const { start, end, kind, chunk, micro } of passes) {
                cells += cell(kind, x(start), x(end), y, 24, shade(chunk, chunks));
                if (room[kind] === undefined) continue;
                letters += text(((x(start) + x(end)) / 2).toFixed(1), y + 16, "middle", room[kind] + micro);
            }
            const idle = passes.map(({ start, at }) => [passes[at - 1]?.end ?? 0, start]);
            idle.push([passes.at(-1).end, makespan]);
            const gaps = idle.filter(([from, to]) => from < to)
                .map(([from, to]) => area(x(from), y, x(to) - x(from), 24, "url(#idle)"));
            body += text(left - 6, y + 17, "end", narrow ? rank : `rank ${rank}`);
            body += `<g data-rank="${rank}">${area(left, y, right - left, 24, "transparent")}${gaps.join("")}${cells}
                <g font-size="11" pointer-events="none">${letters}</g></g>`;
        });
        const bottom = top + row * ranks - 4;

        // A veil covers the passes of later times.
        body += `<g pointer-events="none">`;
        const veil = area(x(time), top, right - x(time), bottom - top, "");
        if (!pass) body += `<g class="later" fill-opacity="0.45">${veil}</g>`;

        // The passes that a pass waits for, and the pass itself.
        const outline = (pass, line, dashes) => `<rect x="${x(pass.start)}" y="${middle(pass.rank) - 12}"
            width="${x(pass.end) - x(pass.start)}" height="24" fill="none" stroke="currentColor" stroke-width="${line}"
            stroke-dasharray="${dashes}"/>`;
        if (pass) {
            for (const need of needs) {
                if (need.rank !== pass.rank) {
                    const down = Math.sign(pass.rank - need.rank);
                    const [x1, y1] = [x(pass.start) + 5, middle(pass.rank) - 4 * down];
                    body += `<path d="M${x(need.end) - 4} ${middle(need.rank) + 10 * down} L${x1} ${y1}"
                        stroke="currentColor" stroke-width="2"/><path d="M${x1} ${y1} l-5 ${-7 * down} h10 Z"/>`;
                }
                body += outline(need, 2, "none");
            }
            if (before) body += outline(before, 2, "3 2");
            body += outline(pass, 3.5, "none");
        }
        body += `<path d="M${x(time)} ${top - 4} V${bottom + 4}" stroke="currentColor" stroke-width="1.5"/>
            <path d="M${x(time)} ${top - 1} l-5 -7 h10 Z"/></g>`;

        // A step has two parts: the work, as if nothing waited, and the bubble.
        const part = (from, to, fill, ...words) => {
            const fits = words.find(words => x(to) - x(from) > 7 * words.length + 4);
            const box = [x(from), bottom + 8, x(to) - x(from), 20];
            return area(...box, fill) + frame(...box, "currentColor", 1)
                + (fits ? text((x(from) + x(to)) / 2, bottom + 22, "middle", fits) : "");
        };
        body += part(0, busy, "none", `work ${inPasses(busy, values)}`);
        const bubble = inPasses(makespan - busy, values);
        if (busy < makespan) body += part(busy, makespan, "url(#idle)", `bubble ${bubble}`, bubble);

        // The activations of each rank.
        const most = Math.max(...peaks);
        const [barLeft, barTop, barRight] = side ? [width - side, top, width - 62] : [50, bottom + 60, width - 62];
        const wide = held => (barRight - barLeft) * held / most;
        if (!side) body += text(0, barTop - 8, "start", kept);
        rows.forEach((passes, rank) => {
            const y = barTop + (side ? row : 24) * rank;
            const held = shardlab.kept(passes, time);
            if (!side) body += text(0, y + 13, "start", `rank ${rank}`);
            body += `<g fill-opacity="0.5">${area(barLeft, y + (side ? 4 : 1), wide(held), 16, pink)}</g>`;
            body += frame(barLeft, y + (side ? 4 : 1), wide(peaks[rank]), 16, "currentColor", 1);
            body += text(width, y + (side ? 17 : 14), "end", `${held} of ${peaks[rank]}`);
        });
        const end = side ? bottom + 30 : barTop + 24 * ranks;

        const heads = ["step", "work", "bubble", "bubble / step", "bubble / work", "peak"];
        const cells = [makespan, busy].map(units => inPasses(units, values));
        const below = table(heads, [[...cells, bubble, ofStep, ofWork, Number((most / chunks).toFixed(2))]]);
        const title = `${values.schedule}: the passes of each rank in one step. The bubble is ${ofStep} of the step.`;
        const said = pass ? inWords(pass, found, values) : now(time, found, values);
        return { said, picture: svg(width, end, title, body) + below };
    }

    const controls = data && {
        schedule: { label: "schedule", values: data.names, start: "1f1b", list: true },
        ranks: { label: "stages", values: data.ranks, start: 4 },
        chunks: { label: "chunks per rank", values: data.chunks, start: 1 },
        micro: { label: "micro-batches", values: data.micro, start: 8 },
        ratio: { label: "backward pass", values: data.ratios, start: 2, words: ratio => `${ratio} ×` },
        time: { label: "time", values: [...Array(4096).keys()], start: 0, words(time, values) {
            const { moments } = chosen(values);
            return moments ? inPasses(moments[Math.min(time, moments.length - 1)], values) : "no step";
        } },
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

// Iterations of ranks that average their gradients: all wait for the one that computes longest. Every case is data that the
// library wrote (labs/tools/book/straggler.rs says how). This script shows it, and computes no iteration.
{
    const { area, frame, hatched, passes, ranks: colours, seconds, svg, table, text } = shardlab;
    const data = shardlab.data("straggler");
    // The seconds of an all-reduce, the mean ones of an iteration and of a rank's wait in it, and the microseconds that each
    // rank computes in the first iterations.
    const found = ({ ranks, slow, noise }) => data.cases.find(one => one.ranks === ranks && one.slow === slow && one.noise === noise);

    const percent = share => `${Math.round(100 * share)}%`;
    const controls = {
        slow: { label: "rank 1 computes", values: [1, 1.1, 1.25, 1.5, 2, 3], start: 1.5, words: n => `${n} × as long` },
        noise: { label: "times vary by", values: [0, 0.05, 0.1, 0.2, 0.3], start: 0.1, words: n => n === 0 ? "nothing" : `±${percent(n)}` },
        ranks: { label: "ranks", values: [2, 3, 4, 6, 8], start: 4 },
    };

    // What the ranks do in the first 60 ms.
    function timeline({ ranks }, { all, reduce }, width) {
        const [left, right, top, high, end] = [52, width - 4, 30, 28, 0.06];
        const x = time => left + (right - left) * Math.min(time, end) / end;
        const box = (from, to, y, colour, opacity) => x(to) - x(from) < 0.1 ? ""
            : `<rect x="${x(from).toFixed(2)}" y="${y}" width="${(x(to) - x(from)).toFixed(2)}" height="${high - 6}" fill="${colour}"
                fill-opacity="${opacity}" stroke="${colour}"/>`;
        let body = area(0, 1, 14, 14, passes.link) + text(20, 13, "start", "all-reduce")
            + area(112, 1, 14, 14, "url(#waits)") + frame(112, 1, 14, 14, "currentColor", 1) + text(132, 13, "start", "waits");
        let [start, whole] = [0, 0];
        for (const computes of all.map(all => all.map(time => time / 1e6))) {
            const last = start + Math.max(...computes);
            computes.forEach((time, rank) => {
                const y = top + high * rank;
                body += box(start, start + time, y, colours[rank], 0.45);
                if (last > start + time) body += area(x(start + time), y, x(last) - x(start + time), high - 6, "url(#waits)");
                body += box(last, last + reduce, y, passes.link, 0.7);
            });
            start = last + reduce;
            if (start <= end) whole++;
        }
        for (let rank = 0; rank < ranks; rank++) body += text(0, top + high * rank + 16, "start", `rank ${rank}`);
        const bottom = top + high * ranks;
        body += text(left, bottom + 12, "start", "0 ms") + text(right, bottom + 12, "end", "60 ms");
        return [body, bottom + 18, whole];
    }

    function draw(values, width) {
        const job = found(values);
        const [body, height, whole] = timeline(values, job, width);
        const share = job.waits / job.step;
        const why = values.slow > 1 ? "The others wait for rank 1." : values.noise > 0 ? "In each iteration another rank is the last." : "No rank waits.";
        const said = `In 60 ms ${whole} iterations are complete. An iteration takes ${seconds(job.step)}, of which a rank waits `
            + `${seconds(job.waits)}, ${percent(share)}. ${why}`;
        const sizes = [values.ranks, ...[8, 64, 512].filter(ranks => ranks !== values.ranks)];
        const row = ranks => {
            const { step, waits } = found({ ...values, ranks });
            return [ranks, seconds(step), seconds(waits), percent(waits / step)];
        };
        const heads = ["ranks", "an iteration", "of it waiting", "share"];
        return { said, picture: svg(width, height, `Iterations of ${values.ranks} ranks. ${said}`, hatched + body) + table(heads, sizes.map(row), 0) };
    }

    shardlab.live("straggler", controls, draw);
}

// Two weights of a model on several ranks, with and without the average of their gradients. Every case is data that real ranks
// wrote (labs/tools/book/drift.rs says how). This script shows it, and trains nothing.
{
    const { ranks: colours, svg, table, text, three } = shardlab;
    const data = shardlab.data("drift");
    const [steps, curvature] = [40, [1, 0.25]];

    // Each rank's weights before the first step and after each; the data has millionths.
    function found({ ranks, average, batches }) {
        const { weights } = data.cases.find(one => one.ranks === ranks && one.average === average && one.batches === batches);
        return weights.map(ofRank => ofRank.map(both => both.map(weight => weight / 1e6)));
    }

    const controls = {
        step: { label: "step", values: [...Array(steps + 1).keys()], start: steps },
        ranks: { label: "ranks", values: [2, 3, 4, 6, 8], start: 4 },
        average: { label: "the average is", values: ["left out", "taken"], start: "left out", list: true },
        batches: { label: "each rank's batches are", values: ["its own", "rank 0's"], start: "its own", list: true },
    };

    const loss = weights => weights.reduce((sum, w, i) => sum + curvature[i] * (w - 1) ** 2 / 2, 0);
    const distance = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]);
    // After a step: how far the replicas are apart at most, and their mean loss over all data.
    function after(all, step) {
        const now = all.map(weights => weights[step]);
        const most = Math.max(...now.flatMap(one => now.map(other => distance(one, other))));
        return { most, mean: now.map(loss).reduce((sum, loss) => sum + loss) / now.length };
    }

    // How wide a rank's line is. Lines that lie on each other stay visible: the first ranks' are wider.
    const wide = (rank, ranks, same) => same ? 1.5 + 1.6 * (ranks - 1 - rank) : 2;

    // The plane of the two weights, with lines of equal loss.
    function plane(all, step, side, same) {
        const at = ([x, y]) => [side * (x + 0.2) / 2, side * (1.8 - y) / 2];
        const middle = at([1, 1]);
        let body = `<rect x="0.5" y="0.5" width="${side - 1}" height="${side - 1}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>`;
        for (const level of [0.005, 0.02, 0.045, 0.075]) {
            const [rx, ry] = curvature.map(c => side / 2 * Math.sqrt(2 * level / c));
            body += `<ellipse cx="${middle[0]}" cy="${middle[1]}" rx="${rx.toFixed(1)}" ry="${ry.toFixed(1)}" fill="none"
                stroke="currentColor" stroke-opacity="0.3"/>`;
        }
        all.forEach((weights, rank) => {
            const points = weights.slice(0, step + 1).map(point => at(point).map(number => number.toFixed(1)).join(",")).join(" ");
            const width = wide(rank, all.length, same);
            const [x, y] = at(weights[step]);
            body += `<polyline points="${points}" fill="none" stroke="${colours[rank]}" stroke-width="${width}" stroke-linejoin="round"/>
                <circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${width / 2 + 4}" fill="${colours[rank]}"/>`;
        });
        return body + text(6, side - 8, "start", "weight 0 →") + text(6, 17, "start", "weight 1 ↑");
    }

    // Each replica's loss over all data.
    function curves(all, step, width, top, same) {
        const [left, right, height] = [38, width - 18, 110];
        const x = at => left + (right - left) * at / steps;
        const y = loss => top + height - height * loss / 0.65;
        let body = text(0, top - 10, "start", "loss of each replica, over all data");
        for (const tick of [0, 0.2, 0.4, 0.6]) {
            body += `<path d="M${left} ${y(tick).toFixed(1)} H${right}" stroke="currentColor" stroke-opacity="0.2"/>`
                + text(left - 6, y(tick) + 4, "end", tick);
        }
        for (const tick of [0, 10, 20, 30, 40]) body += text(x(tick), top + height + 17, "middle", tick);
        all.forEach((weights, rank) => {
            const points = weights.slice(0, step + 1).map((point, i) => `${x(i).toFixed(1)},${y(loss(point)).toFixed(1)}`).join(" ");
            body += `<polyline points="${points}" fill="none" stroke="${colours[rank]}" stroke-width="${wide(rank, all.length, same)}"/>`;
        });
        return body + text(left + (right - left) / 2, top + height + 34, "middle", "step");
    }

    function draw(values, width) {
        const { step, ranks, average, batches } = values;
        const all = found(values);
        const { most, mean } = after(all, step);
        const same = most < 1e-9;
        const side = Math.min(width, 340);
        let legend = "";
        for (let rank = 0; rank < ranks; rank++) {
            const [x, y] = [58 * (rank % 4), 18 * Math.floor(rank / 4)];
            legend += `<circle cx="${x + 6}" cy="${y + 8}" r="5" fill="${colours[rank]}"/>` + text(x + 15, y + 13, "start", `rank ${rank}`);
        }
        const top = 18 * Math.ceil(ranks / 4) + 8;
        const body = legend + `<g transform="translate(0 ${top})">${plane(all, step, side, same)}</g>`
            + curves(all, step, width, top + side + 34, same);
        const check = ({ most }) => most < 1e-9 ? "alike" : "differ";
        const ways = controls.batches.values.flatMap(batches => controls.average.values.map(average => ({ average, batches })));
        const rows = ways.map(way => {
            const then = after(found({ ranks, ...way }), step);
            return [`${way.average}, ${way.batches}`, check(then), three(then.mean)];
        });
        const best = ways.findIndex(way => way.average === average && way.batches === batches);
        const apart = same ? "all replicas are one model" : `the replicas are up to ${three(most)} apart`;
        const said = `After step ${step} ${apart}. Their mean loss has fallen from ${three(loss([0, 0]))} to ${three(mean)}.`;
        const heads = ["average, batches", "fingerprints", "mean loss"];
        return { said: step === 0 ? "All replicas begin alike." : said,
            picture: svg(width, top + side + 186, `Two weights of ${ranks} replicas. ${said}`, body) + table(heads, rows, best) };
    }

    shardlab.live("drift", controls, draw, (live) => shardlab.player(live, live.querySelector("[name=step]"), 250));
}

// The ring's all-reduce, round by round: which chunk goes where, and whose numbers each chunk contains.
{
    const { area, frame, ranks, text, three } = shardlab;
    const colour = rank => ranks[rank % ranks.length];

    // After each round: the chunk that each rank has sent, and for each rank and chunk whose numbers it contains. In
    // the first n-1 rounds a rank adds what it receives; in the others it overwrites.
    shardlab.ring = n => {
        const all = [...Array(n).keys()];
        const states = [{ sent: [], held: all.map(rank => all.map(() => all.map(other => other === rank))) }];
        for (let round = 1; round <= 2 * (n - 1); round++) {
            const before = states.at(-1).held;
            const held = before.map(chunks => [...chunks]);
            const sent = all.map(rank => (rank + 2 * n - round) % n);
            sent.forEach((chunk, from) => {
                const to = (from + 1) % n;
                held[to][chunk] = all.map(i => before[from][chunk][i] || (round < n && before[to][chunk][i]));
            });
            states.push({ sent, held });
        }
        return states;
    };

    const controls = {
        ranks: { label: "ranks", values: [2, 3, 4, 5, 6, 7, 8], start: 4 },
        round: { label: "round", values: [...Array(15).keys()], start: 0 },
    };

    // The ranks in a circle, and the chunk that each one has sent to the next.
    function circle(n, sent) {
        const at = (rank, radius) => {
            const angle = 2 * Math.PI * (rank / n - 0.25);
            return [150 + 1.15 * radius * Math.cos(angle), 118 + radius * Math.sin(angle)];
        };
        let body = text(150, 122, "middle", "ranks");
        for (let rank = 0; rank < n; rank++) {
            const [x, y] = at(rank, 98);
            body += `<circle cx="${x}" cy="${y}" r="16" fill="none" stroke="${colour(rank)}" stroke-width="3"/>`;
            body += text(x, y + 5, "middle", rank);
            // The arrow leaves room for the two circles.
            const gap = 0.035 * n;
            const [[x0, y0], [x1, y1], [x2, y2]] = [gap, 0.5, 0.93 - gap].map(part => at(rank + part, 98));
            const curve = `Q${2 * x1 - (x0 + x2) / 2} ${2 * y1 - (y0 + y2) / 2}`;
            const head = Math.atan2(y2 - (2 * y1 - (y0 + y2) / 2), x2 - (2 * x1 - (x0 + x2) / 2)) * 180 / Math.PI;
            body += `<g opacity="${sent.length ? 1 : 0.25}">
                <path d="M${x0} ${y0} ${curve} ${x2} ${y2}" fill="none" stroke="${colour(rank)}" stroke-width="3"/>
                <path d="M9 0 L-2 -6 V6 Z" fill="${colour(rank)}" transform="translate(${x2} ${y2}) rotate(${head})"/></g>`;
            const [labelX, labelY] = at(rank + 0.5, 62);
            if (sent.length) body += text(labelX, labelY + 4, "middle", `chunk ${sent[rank]}`);
        }
        return body;
    }

    // The chunks of each rank: a stripe in a rank's colour means that the chunk contains this rank's numbers.
    function chunks(n, round, { sent, held }) {
        const [left, top, row] = [48, 20, 38];
        const width = (300 - left) / n;
        let body = text(0, 13, "start", "chunk");
        for (let rank = 0; rank < n; rank++) {
            const y = top + row * rank;
            body += text(left + width * (rank + 0.5), 13, "middle", rank) + text(0, y + 22, "start", `rank ${rank}`);
            held[rank].forEach((chunk, i) => {
                const from = (rank + n - 1) % n;
                const [x, received] = [left + width * i, sent[from] === i];
                const stripe = (width - 10) / n;
                // Chunks whose sum is not complete fade once complete ones go around.
                const faded = round >= n && chunk.includes(false) ? ' fill-opacity="0.3"' : "";
                chunk.forEach((there, other) => {
                    if (!there) return;
                    const arrives = received && (round >= n || other !== rank);
                    const drawn = area(x + 5 + stripe * other, y + 6, stripe, 24, colour(other));
                    const moves = arrives ? `class="arrives" style="--from:${row * (from - rank)}px"` : "";
                    body += `<g ${faded} ${moves}>${drawn}</g>`;
                });
                body += frame(x + 3, y + 4, width - 6, 28, received ? colour(from) : "currentColor", received ? 3 : 1);
            });
        }
        sent.forEach((chunk, from) => {
            const x = left + width * (chunk + 0.5);
            const arrow = y => `<path d="M${x - 6} ${y} h12 l-6 6 Z" fill="${colour(from)}"/>`;
            body += arrow(top + row * (from + 1) - 5);
        });
        return body;
    }

    function draw({ ranks: n, round }) {
        const state = shardlab.ring(n)[round];
        const last = 2 * (n - 1);
        const half = round < n ? "reduce-scatter: each rank added" : "all-gather: each rank copied";
        const reached = { [n - 1]: " Each sum is complete on one rank.", [last]: " Every rank has every sum." }[round] ?? "";
        const said = round === 0 ? "Before: each rank has only its own numbers."
            : `Round ${round} of ${last}, ${half} the chunk that it received.${reached} ` +
              `Each rank has sent ${three(round / n)} S of ${three(last / n)} S.`;
        const panel = (height, title, body) => `<svg class="figure" role="img" aria-label="${title}"
            viewBox="0 0 300 ${height}" font-size="13" fill="currentColor">${body}</svg>`;
        const complete = state.held.map(chunks => chunks.filter(chunk => !chunk.includes(false)).length).join(", ");
        const left = panel(246, "The ring of ranks, and the chunk that each has sent", circle(n, state.sent));
        const right = panel(26 + 38 * n, `Complete chunks, rank by rank: ${complete}`, chunks(n, round, state));
        return { said, picture: `<div class="panels">${left}${right}</div>` };
    }

    shardlab.live("ring", controls, draw, live => {
        const [ranks, round] = ["ranks", "round"].map(name => live.querySelector(`[name=${name}]`));
        const begin = () => {
            round.max = 2 * (Number(ranks.value) + 1);
            round.value = 0;
        };
        begin();
        ranks.addEventListener("input", begin);
        shardlab.player(live, round, 1500);
    });
}

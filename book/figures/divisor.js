// One number of an expert's gradient on four ranks: what each has of it, and what divides the sum. Every case is data that real
// ranks wrote (labs/tools/book/divisor.rs says how). This script shows it, and divides nothing.
{
    const { ranks: colours, svg, table, text, tinted } = shardlab;
    const data = shardlab.data("divisor");
    const ways = ["all ranks", "the ranks that hold the expert"];
    const caseOf = ep => data.cases.find(one => one.ep === ep);

    const controls = {
        ep: { label: "ranks that share, <code>ep</code>", values: [1, 2, 4], start: 2 },
        way: { label: "the sum is divided by", values: ways, start: ways[0], list: true },
    };

    function draw({ ep, way }, width) {
        const { own, sums, divided } = caseOf(ep);
        const which = ways.indexOf(way);
        const { by, is, times } = divided[which];
        const holders = sums.flatMap((both, rank) => both ? [rank] : []);
        const [left, gap, high, row] = [92, 6, 26, 50];
        const cell = (width - left - 1) / own.length - gap;
        const [x, y] = [rank => left + rank * (cell + gap), at => 24 + at * row];
        const middle = rank => x(rank) + cell / 2;
        const line = (from, to, at) => `<path d="M${middle(from).toFixed(1)} ${y(at) + high} L${middle(to).toFixed(1)} ${y(at + 1)}"
            fill="none" stroke="${colours[from]}" stroke-width="1.5"/>`;
        const dashes = 'fill="none" stroke="currentColor" stroke-opacity="0.5" stroke-dasharray="3 3"';
        const box = (rank, at, number, out) => `<rect x="${x(rank).toFixed(1)}" y="${y(at)}" width="${cell.toFixed(1)}" height="${high}" rx="2"
            ${number === undefined ? dashes : tinted(colours[rank])}/>` + (number === undefined ? ""
            : `<g text-decoration="${out ? "line-through" : "none"}">${text(middle(rank).toFixed(1), y(at) + 17, "middle", number)}</g>`);
        let body = text(0, 14, "start", `ep=${ep}`) + ["own tokens", "sum over ep", "sum over edp", `divided by ${by}`].map((words, at) => text(0, y(at) + 17, "start", words)).join("");
        own.forEach((number, rank) => {
            body += text(middle(rank).toFixed(1), 14, "middle", `rank ${rank}`) + box(rank, 0, number)
                + line(rank, holders.findLast(holder => holder <= rank), 0);
            const [sent, sum] = sums[rank] ?? [];
            body += box(rank, 1, sent) + box(rank, 2, sum) + box(rank, 3, sums[rank] ? is : undefined, times !== 1);
        });
        for (const from of holders) body += holders.map(to => line(from, to, 1)).join("") + line(from, from, 2);
        const who = holders.length === 1 ? "One rank holds" : `${holders.length} ranks hold`;
        const all = sums[holders[0]][1];
        const right = times === 1 ? "as on one rank" : `${times} times the gradient`;
        const said = `${who} expert 0, and the sum over all tokens is ${all}. Divided by ${by} that is ${is}, ${right}.`;
        const cells = ({ by, is }) => `${all}/${by} = ${is}`;
        const rows = data.cases.map(({ ep, divided }) => [`ep=${ep}`, ...divided.map(cells)]);
        const heads = ["", "by all ranks", "by those that hold it"];
        return { said, picture: svg(width, y(3) + high + 8, `An expert's gradient on four ranks. ${said}`, body)
            + table(heads, rows, controls.ep.values.indexOf(ep)) };
    }

    if (data) shardlab.live("divisor", controls, draw);
}

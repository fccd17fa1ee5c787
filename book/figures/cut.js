// An MLP on the ranks that share it, Y = max(0, X·A)·C: which rank holds which numbers, matrix by matrix, and where the
// ranks must add. max has GELU's place, so that all numbers are whole. Every case is data that real ranks wrote
// (labs/tools/book/cut.rs says how). This script shows it, and multiplies nothing.
{
    const { ranks: colours, svg, text, tinted } = shardlab;
    const data = shardlab.data("cut");
    const ways = ["by columns", "by rows, sum before max", "by rows, max before sum"];

    const map = (matrix, change) => matrix.map((row, i) => row.map((number, j) => change(number, i, j)));
    // The matrices from X to Y, and what each rank holds of each: null where it holds nothing.
    const stagesOf = ({ way, ranks }) => data.cases.find(one => one.way === way && one.ranks === ranks).stages;

    const controls = {
        ranks: { label: "ranks <i>t</i>", values: [1, 2, 4], start: 2 },
        step: { label: "matrix", values: [0, 1, 2, 3, 4, 5, 6, 7], start: 6,
                words: (step, values) => stagesOf(values)[Math.min(step, 7 - (values.way === ways[0]))].name },
        way: { label: "<i>A</i> is cut", values: ways, start: ways[0], list: true },
    };
    const signed = number => String(number).replace("-", "−");
    const plus = numbers => numbers.map(signed).join(" + ").replaceAll("+ −", "− ");
    const brackets = number => number < 0 ? `(${signed(number)})` : number;
    const wrong = (stage, right) => map(stage.held[0], (number, i, j) => number !== right.held[0][i][j]).flat().filter(Boolean).length;

    // What happens at a step, with the number at the top left.
    function words({ ranks, way }, stages, at, right) {
        const [stage, before] = [stages[at], stages[at - 1]];
        const first = held => held.find(part => part[0][0] !== null)[0][0];
        const each = stage => (stage.summands ? stage.held : [stage.held.find(part => part[0][0] !== null)]).map(part => part[0][0]);
        const terms = (left, right) => left[0].flatMap((number, k) =>
            number === null || right[k][0] === null ? [] : `${brackets(number)}·${brackets(right[k][0])}`).join(" + ");
        const [byColumns, alone] = [way === ways[0], ranks === 1];
        const sum = `${plus(each(before ?? stage))}${alone ? "" : ` = ${signed(first(stage.held))}`}`;
        const share = `${4 / ranks} of `;
        switch (stage.name) {
            case "X": return byColumns ? "Every rank holds all of X." : `Each rank needs ${share}4 columns of X, those that meet its rows of A.`;
            case "A": return `Each rank holds ${share}A's 4 ${byColumns ? "columns" : "rows"}.`;
            case "summands": return `Rank 0 computes ${terms(stages[0].held[0], stages[1].held[0])} = ${signed(first(stage.held))}`
                + `${alone ? "" : `, and each other rank its own number for the same place. None is a whole sum`}.`;
            case "max": return `Each rank applies max too early: ${stage.held.map((part, rank) =>
                `max(0, ${signed(before.held[rank][0][0])}) = ${part[0][0]}`).join(", ")}.`;
            case "X·A": return byColumns ? `Rank 0 computes ${terms(stages[0].held[0], stages[1].held[0])} = ${signed(first(stage.held))}. Each number is a whole sum on one rank.`
                : alone ? "One rank has nothing to add." : `The ranks must stop and add: ${sum}. Then every rank has all of X·A.`;
            case "H": return way === ways[2] ? alone ? "One rank has nothing to add."
                : `The all-reduce adds ${sum}, but max(0, ${plus(each(stages[2]))}) = ${first(right[4].held)}. `
                    + `${wrong(stage, right[4])} of 8 numbers are wrong.`
                : `max(0, ${signed(first(before.held))}) = ${first(stage.held)}. `
                    + (byColumns ? "Each rank applies it to its own numbers: nothing is sent." : "Each rank applies it to all numbers.");
            case "C": return `Each rank holds ${share}C's 4 rows, ${byColumns ? "which meet the columns of H that it has" : "and uses the columns of H that they meet"}.`;
            case "H·C": return `Each rank multiplies its columns of H with its rows of C: ${alone ? "all" : `${ranks} summands`} of Y.`;
        }
        const ended = byColumns ? "Nothing else was sent." : "It is the second all-reduce.";
        const bad = way === ways[2] ? ` ${wrong(stage, right.at(-1))} of 4 numbers are wrong: max came before the sum.` : "";
        if (alone) return "One rank has nothing to add.";
        return `${byColumns ? "One" : "An"} all-reduce adds the summands of Y: ${sum}. ${ended}${bad}`;
    }

    // One matrix, or one below the other for summands; empty cells if it is not there yet.
    function matrix(stage, cell, x, top, high, there, right) {
        const blocks = stage.summands ? stage.held : [stage.held[0]];
        const [rows, columns] = [blocks[0].length, blocks[0][0].length];
        let y = top + (high - blocks.length * (rows * cell + 14) + 14) / 2;
        let body = "";
        blocks.forEach((block, rank) => {
            if (rank > 0 && there) body += text(x + columns * cell / 2, y - 3, "middle", "+");
            map(block, (_, i, j) => {
                const owners = stage.held.flatMap((part, rank) => part[i][j] === null ? [] : [rank]);
                const own = stage.summands ? rank : owners[0];
                const colour = stage.summands || owners.length === 1 ? colours[own] : "#8a8f98";
                const [left, up] = [x + j * cell, y + i * cell];
                const look = there ? tinted(colour) : 'fill="none" stroke="currentColor" stroke-opacity="0.2"';
                body += `<rect x="${left}" y="${up}" width="${cell}" height="${cell}" ${look}/>`;
                const number = stage.held[own][i][j];
                const out = right && !stage.summands && number !== right.held[0][i][j] ? "line-through" : "none";
                if (there) body += `<g text-decoration="${out}">${text(left + cell / 2, up + cell / 2 + 4.5, "middle", signed(number))}</g>`;
            });
            y += rows * cell + 14;
        });
        return body;
    }

    function draw(values, width) {
        const stages = stagesOf(values);
        const right = stagesOf({ ...values, way: ways[1] });
        const at = Math.min(values.step, stages.length - 1);
        const said = words(values, stages, at, right);
        const columns = stages.map(({ held }) => held[0][0].length);
        // In one line if a cell is then wide enough for its number, else in two.
        const half = stages.findIndex(({ name }) => name === "H");
        const lines = [[0, stages.length]];
        // What follows a matrix is a sign, or a word above an arrow.
        const isWord = ({ next }) => next === "max" || next === "add";
        const gap = stage => isWord(stage) ? 30 : 18;
        const add = numbers => numbers.reduce((sum, number) => sum + number);
        const room = ([from, to]) => (width - 4 - add([0, ...stages.slice(Math.max(from - 1, 0), to - 1).map(gap)])) / add(columns.slice(from, to));
        if (room(lines[0]) < 18) lines.splice(0, 1, [0, half], [half, stages.length]);
        const cell = Math.floor(Math.min(22, ...lines.map(room)));
        let body = "";
        let [x, y] = [1, 1];
        const keys = [...Array(values.ranks).keys()].map(rank => [`rank ${rank}`, colours[rank]]);
        for (const [name, colour] of [...keys, ["every rank", "#8a8f98"]]) {
            if (x + 22 + 7 * name.length > width) [x, y] = [1, y + 20];
            body += `<rect x="${x}" y="${y}" width="14" height="14" ${tinted(colour)}/>`
                + text(x + 20, y + 12, "start", name);
            x += 32 + 7 * name.length;
        }
        y += 42;
        for (const [from, to] of lines) {
            const inLine = stages.slice(from, to);
            const high = Math.max(...inLine.map(({ held, summands }) => summands ? held.length * (held[0].length * cell + 14) - 14 : held[0].length * cell));
            x = 2;
            // The sign between two lines is in front of the second.
            const sign = i => {
                const [{ next }, word] = [stages[i], isWord(stages[i])];
                const middle = x + gap(stages[i]) / 2;
                if (i < at) body += text(middle, y + high / 2 + 4, "middle", word ? "→" : next);
                if (i < at && word) body += text(middle, y + high / 2 - 8, "middle", next);
                x += gap(stages[i]);
            };
            inLine.forEach((stage, i) => {
                if (from + i > 0) sign(from + i - 1);
                const [wide, shown] = [columns[from + i] * cell, from + i <= at];
                const compare = values.way === ways[2] && ["H", "Y"].includes(stage.name) && right.find(({ name }) => name === stage.name);
                body += text(x + wide / 2, y - 8, "middle", from + i === at ? `<tspan font-weight="bold">${stage.name}</tspan>` : stage.name);
                body += matrix(stage, cell, x, y, high, shown, compare);
                x += wide;
            });
            y += high + 34;
        }
        return { said, picture: svg(width, y - 26, `An MLP on its ranks. ${said}`, body) };
    }

    if (data) shardlab.live("cut", controls, draw, live => {
        const [step, way] = ["step", "way"].map(name => live.querySelector(`[name=${name}]`));
        // By rows there is one matrix more. The last one stays the last one.
        const end = () => {
            const last = step.value === step.max;
            step.max = way.value === "0" ? 6 : 7;
            if (last) step.value = step.max;
        };
        end();
        live.addEventListener("input", end, true);
        shardlab.player(live, step, 2500);
    });
}

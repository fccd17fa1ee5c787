// The mesh of a job: which ranks a rank communicates with along each axis, on which nodes they are, and the bytes that it
// sends. The job is lab11's: Llama 3's model of 70 billion parameters with ZeRO-1. What a rank holds and sends is data that
// its planner wrote (labs/tools/book/mesh.rs says how). This script finds groups and nodes.
{
    const { area, bytes, curves, frame, svg, table, text } = shardlab;
    const cases = shardlab.data("mesh")?.cases;
    const axes = ["tensor", "data", "pipeline"];
    const colours = { tensor: curves[0], data: curves[1], pipeline: curves[2] };
    const orders = { "pipeline farthest": axes, "data farthest": ["tensor", "pipeline", "data"] };

    // A rank's place on each axis, its groups, and how many nodes each of them is on.
    shardlab.mesh = ({ data, pipeline, tensor, order, node, rank }) => {
        const sizes = { data, pipeline, tensor };
        const [at, groups, nodes] = [{}, {}, {}];
        let below = 1;
        for (const axis of orders[order]) {
            at[axis] = Math.floor(rank / below) % sizes[axis];
            groups[axis] = Array.from({ length: sizes[axis] }, (_, i) => rank + (i - at[axis]) * below);
            nodes[axis] = new Set(groups[axis].map(rank => Math.floor(rank / node))).size;
            below *= sizes[axis];
        }
        return { at, groups, nodes };
    };

    // The layers of a stage, the parameters of a rank, the bytes of their state, and what it sends on each axis in a step. All
    // stages between the first and the last are alike.
    function held(sizes, stage) {
        const { layers, stages } = cases.find(one => axes.every(axis => one[axis] === sizes[axis]));
        const [parameters, state, sent] = stages.at(stage === 0 ? 0 : stage === sizes.pipeline - 1 ? -1 : 1);
        return { layers, parameters, state, sent };
    }

    const all = ({ data, pipeline, tensor }) => data * pipeline * tensor;
    const commas = value => value.toLocaleString("en");
    const controls = {
        tensor: { label: "tensor <i>t</i>", values: [1, 2, 4, 8], start: 2 },
        data: { label: "data <i>d</i>", values: [1, 2, 3, 4, 6, 8, 12, 16], start: 2 },
        pipeline: { label: "pipeline <i>p</i>", values: [1, 2, 4, 8], start: 2 },
        node: { label: "ranks per node", values: [1, 2, 4, 6, 8, 12, 16], start: 4 },
        order: { label: "order of ranks", values: Object.keys(orders), start: "pipeline farthest", list: true },
        rank: { label: "this rank", values: [...Array(1024).keys()], start: 5, words: rank => `rank ${rank}`,
                stuck: values => all(values) === 1 && "There is only one rank." },
    };

    // The nodes, with a cell for each rank. Cells are as large as there is room.
    function picture(values, found, width) {
        const { node, rank } = values;
        const [count, rows] = [all(values), Math.ceil(node / 8)];
        const columns = Math.ceil(node / rows);
        const boxes = Math.ceil(count / node);
        const plan = cell => {
            const [wide, high] = [columns * cell + 8, rows * cell + 8 + (cell >= 20 ? 18 : 0)];
            const across = Math.max(1, Math.floor((width + 8) / (wide + 8)));
            return { cell, wide, high, across, height: Math.ceil(boxes / across) * (high + 8) };
        };
        const plans = [44, 38, 32, 26, 20, 14, 10, 7].map(plan).filter(({ wide }) => wide <= width);
        const { cell, wide, high, across, height } = plans.find(({ height }) => height <= 320) ?? plans.at(-1);
        const of = new Map(axes.flatMap(axis => found.groups[axis].map(rank => [rank, axis])));
        let body = "";
        let at = 0;
        for (const [i, axis] of axes.entries()) {
            body += area(at, 1, 14, 14, colours[axis]) + text(at + 20, 13, "start", axis);
            at += [72, 58, 82][i];
        }
        // On a narrow page the last item has a line of its own.
        const [x, y] = at + 84 < width ? [at, 0] : [0, 22];
        body += frame(x + 1, y + 2, 13, 13, "currentColor", 3) + text(x + 20, y + 13, "start", "this rank");
        for (let box = 0; box < boxes; box++) {
            const [left, top] = [1 + box % across * (wide + 8), 27 + y + Math.floor(box / across) * (high + 8)];
            body += frame(left, top, wide - 2, high - 2, "currentColor", 1);
            const label = cell >= 20 && wide > 60 ? `node ${box}` : cell >= 20 ? box : "";
            if (label !== "") body += text(left + 6, top + 15, "start", label);
            for (let local = 0; local < node && box * node + local < count; local++) {
                const which = box * node + local;
                const [x, y] = [left + 3 + local % columns * cell, top + high - 5 - (rows - Math.floor(local / columns)) * cell];
                const [chosen, axis] = [which === rank, of.get(which)];
                const look = chosen ? 'fill="transparent" stroke="currentColor" stroke-width="3"'
                    : axis ? `fill="${colours[axis]}" fill-opacity="0.75"`
                    : 'fill="transparent" stroke="currentColor" stroke-opacity="0.3"';
                const line = chosen ? 2 : 1;
                const name = cell >= 26 ? `<g pointer-events="none">${text(x + cell / 2, y + cell / 2 + 4.5, "middle", which)}</g>` : "";
                body += `<rect x="${x + line}" y="${y + line}" width="${cell - 2 * line}" height="${cell - 2 * line}" ${look}
                    data-cell="${which}"/>${name}`;
            }
        }
        return [body, 28 + y + height];
    }

    const list = ranks => ranks.length <= 4 ? ranks.join(", ") : `${ranks.slice(0, 3).join(", ")} … ${ranks.at(-1)}`;
    const on = nodes => nodes === 1 ? "1 node" : `${nodes} nodes`;

    function draw(values, width) {
        const count = all(values);
        const rank = Math.min(values.rank, count - 1);
        const found = shardlab.mesh({ ...values, rank });
        const { at, groups, nodes } = found;
        const stage = at.pipeline;
        const { layers, parameters, state, sent } = held(values, stage);
        const [body, height] = picture({ ...values, rank }, found, width);
        const narrow = width < 480;
        const rows = axes.map((axis, i) => {
            const swatch = `<svg width="26" height="12" aria-hidden="true"><rect x="6" width="14" height="12"
                fill="${colours[axis]}"/></svg>`;
            const ranks = `<div>${list(groups[axis])}${narrow ? ` on ${on(nodes[axis])}` : ""}</div>`;
            const most = groups[axis].length > 1 ? bytes(sent[i]) : "nothing";
            return [`${swatch} ${axis}`, ...(narrow ? [] : [at[axis]]), ranks, ...(narrow ? [] : [on(nodes[axis])]), most];
        });
        const heads = ["axis", ...(narrow ? [] : ["coordinate"]), "group", ...(narrow ? [] : ["on"]), "sends per step"];
        const [from, to] = [groups.pipeline[stage - 1], groups.pipeline[stage + 1]];
        const ways = [from === undefined ? [] : `come from rank ${from}`, to === undefined ? [] : `go to rank ${to}`].flat();
        const travel = ways.length ? ` Activations ${ways.join(" and ")}.` : "";
        const node = Math.floor(rank / values.node);
        const leaves = nodes.tensor > 1 ? " Its tensor group leaves the node." : "";
        const said = `Rank ${rank} of ${commas(count)}, on node ${node}: replica ${at.data}, stage ${stage}, tensor rank ${at.tensor}. `
            + `It has ${values.tensor > 1 ? "a part of " : ""}layers ${stage * layers} to ${(stage + 1) * layers - 1}, `
            + `${shardlab.three(parameters / 1e9)} billion parameters, whose state takes ${bytes(state)}.${travel}${leaves}`;
        return { said, picture: svg(width, height, `The nodes of the job. ${said}`, body) + table(heads, rows) };
    }

    if (cases) shardlab.live("mesh", controls, draw, (live, redraw, read) => {
        const slider = live.querySelector("[name=rank]");
        const end = () => slider.max = Math.max(1, all(read()) - 1);
        end();
        // Before the figure is drawn again: there are as many ranks as the axes make.
        live.addEventListener("input", end, true);
        live.querySelector(".drawing").addEventListener("click", event => {
            const cell = event.target.closest("[data-cell]");
            if (!cell) return;
            slider.value = cell.dataset.cell;
            redraw();
        });
    });
}

// A page's slides, one at a time and as large as the window. The page itself shows them below each other, with the notes.
{
    const slides = [...document.querySelectorAll("main .slide")];
    const root = document.documentElement;
    let deck = slides;
    let at = 0;

    // A second window of the same page follows, where the browser lets them talk.
    const other = slides.length && "BroadcastChannel" in window ? new BroadcastChannel("shardlab-slides") : null;

    function show(number) {
        at = Math.min(Math.max(number, 0), deck.length - 1);
        slides.forEach(slide => slide.classList.toggle("now", slide === deck[at]));
        other?.postMessage(slides.indexOf(deck[at]));
    }

    // The slides of the short deck alone, or all.
    function choose(short) {
        root.classList.toggle("taste", short);
        deck = slides.filter(slide => !short || slide.classList.contains("taste"));
        slides.forEach(slide => { delete slide.dataset.number; });
        deck.forEach((slide, i) => { slide.dataset.number = `${slide.classList.contains("taste") ? "· " : ""}${i + 1} / ${deck.length}`; });
    }

    function present(short) {
        choose(short);
        root.classList.add("presenting");
        // A browser may refuse, and then the window is as large as it is.
        root.requestFullscreen?.().catch(() => {});
        show(0);
    }

    function leave() {
        root.classList.remove("presenting");
        if (document.fullscreenElement) document.exitFullscreen();
        deck[at].scrollIntoView();
    }

    const keys = {
        ArrowRight: () => show(at + 1), ArrowDown: () => show(at + 1), PageDown: () => show(at + 1), " ": () => show(at + 1),
        ArrowLeft: () => show(at - 1), ArrowUp: () => show(at - 1), PageUp: () => show(at - 1),
        Home: () => show(0), End: () => show(deck.length - 1), Escape: leave,
    };

    if (slides.length) {
        choose(false);
        const bar = document.createElement("p");
        bar.className = "decks";
        for (const [short, name] of [[true, "90 minutes"], [false, "half a day"]]) {
            const button = document.createElement("button");
            button.textContent = `Present: ${name}`;
            button.addEventListener("click", () => present(short));
            bar.append(button, " ");
        }
        slides[0].before(bar);
        // mdBook's own keys turn pages: these come first.
        window.addEventListener("keydown", event => {
            if (!root.classList.contains("presenting") || !keys[event.key]) return;
            event.preventDefault();
            event.stopImmediatePropagation();
            keys[event.key]();
        }, true);
        // Esc ends the full screen before any key is told of it.
        document.addEventListener("fullscreenchange", () => {
            if (!document.fullscreenElement && root.classList.contains("presenting")) leave();
        });
        window.addEventListener("click", event => {
            if (root.classList.contains("presenting") && !event.target.closest("a, button")) show(at + 1);
        });
        other?.addEventListener("message", event => {
            if (root.classList.contains("presenting")) return;
            slides.forEach((slide, i) => slide.classList.toggle("now", i === event.data));
            slides[event.data]?.scrollIntoView({ block: "start" });
        });
    }
}

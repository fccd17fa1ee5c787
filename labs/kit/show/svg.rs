//! The same pictures for pages: inline SVG for the book and for notebooks.
//!
//! Lines and letters have the page's colour (`currentColor`) and its font, and fills have a middle tone. So a picture can be
//! read on light and on dark pages, and needs no network. It is never wider than its column, so it needs no scroll bar.

/// The ranks' colours, in the order of the terminal's: cyan, yellow, magenta, green, blue, red.
pub(super) const PALETTE: [&str; 6] = [
    "#1b98a8", "#c98a00", "#b0509f", "#3c9a4c", "#4577d0", "#d0503f",
];

/// Units of a picture's width; a letter is about 7 wide and 13 high.
pub(super) const WIDTH: f64 = 480.0;

/// An SVG that a notebook shows: as the last value of a cell, the kernel (evcxr) calls [`Picture::evcxr_display`].
pub struct Picture(pub String);

impl Picture {
    /// Hands the picture to the notebook, as HTML: its lines and letters then have the page's colour.
    pub fn evcxr_display(&self) {
        println!(
            "EVCXR_BEGIN_CONTENT text/html\n{}\nEVCXR_END_CONTENT",
            self.0
        );
    }
}

/// The colour of rank `rank`.
pub(super) fn rank_colour(rank: usize) -> &'static str {
    PALETTE[rank % PALETTE.len()]
}

/// `text` as SVG may hold it.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A picture of the given height around `body`, with `title` for those who do not see it. Its letters are as large as a
/// page's usually are, where there is room: 13 of 480 units, on 44 times 13 pixels.
pub(super) fn picture(title: &str, height: f64, body: &str) -> String {
    format!(
        "<svg class=\"figure\" role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" \
         style=\"max-width:44em\" font-size=\"13\" fill=\"currentColor\" xmlns=\"http://www.w3.org/2000/svg\">\n{body}</svg>",
        escape(title)
    )
}

/// A line of text; `anchor` is start, middle or end.
pub(super) fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
        escape(words)
    )
}

/// A filled box: its upper left corner and its size.
pub(super) fn area((x, y): (f64, f64), (width, height): (f64, f64), colour: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>\n"
    )
}

/// An empty box with rounded corners: its upper left corner, its size, and its line.
pub(super) fn frame(
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    colour: &str,
    line: f64,
) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\" fill=\"none\" stroke=\"{colour}\" \
         stroke-width=\"{line}\"/>\n"
    )
}

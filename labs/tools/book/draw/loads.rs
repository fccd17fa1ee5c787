//! Bars beside one device: whether the bytes of each choice fit, with a part of the bar for each
//! kind of data. All have one scale.

use kit::show::bytes_decimal;
use kit::show::svg::{Anchor, Page, WIDTH, curve_colour, filled, framed};

/// The drawing before it is rendered.
#[derive(Clone, Debug)]
pub struct Loads<'a> {
    pub kinds: [&'a str; 3],
    /// A choice, and the bytes of each kind.
    pub rows: Vec<(&'a str, [f64; 3])>,
    /// The bytes that a device has room for.
    pub device: f64,
}

impl Loads<'_> {
    /// The most bytes of a choice.
    fn most(&self) -> f64 {
        self.rows.iter().map(|row| row.1.iter().sum()).fold(0.0, f64::max)
    }

    /// The drawing as an inline SVG. A bar that is longer than its frame does not fit into a
    /// device.
    pub fn svg(&self, title: &str) -> String {
        const TOP: f64 = 32.0;
        const ROW: f64 = 50.0;
        // One device is three fifths of the width, or less where the largest choice would not fit
        // into it.
        let device = (self.device / self.most()).min(0.6);
        let x = |bytes: f64| 1.0 + (WIDTH - 2.0) * device * bytes / self.device;
        let colours = [0, 1, 2].map(curve_colour);
        let mut page = Page::default();
        for ((kind, colour), at) in self.kinds.iter().zip(&colours).zip([0.0, 100.0, 186.0]) {
            page.rect((at, 2.0), (12.0, 12.0), filled(colour));
            page.text((at + 17.0, 13.0), Anchor::Start, kind);
        }
        for (i, (choice, bytes)) in self.rows.iter().enumerate() {
            let y = TOP + ROW * i as f64;
            let mut held = 0.0;
            for (bytes, colour) in bytes.iter().zip(&colours) {
                let width = x(held + bytes) - x(held);
                page.rect((x(held), y + 20.0), (width, 18.0), filled(colour));
                held += bytes;
            }
            let mark = if held <= self.device { "✓" } else { "✗" };
            let held = format!("{} {mark}", bytes_decimal(held));
            page.text((0.0, y + 12.0), Anchor::Start, choice);
            page.text((WIDTH, y + 12.0), Anchor::End, held);
            let end = x(self.device) - 1.0;
            page.rect((1.0, y + 18.0), (end, 22.0), framed("currentColor", 1.0));
            page.rect((end, y + 15.0), (2.5, 28.0), filled("currentColor"));
        }
        let bottom = TOP + ROW * self.rows.len() as f64;
        let device = format!("one device: {}", bytes_decimal(self.device));
        page.text((x(self.device), bottom + 12.0), Anchor::Middle, device);
        page.finish(title, bottom + 18.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_whether_a_device_has_room() {
        let loads = Loads {
            kinds: ["parameters", "gradients", "optimizer"],
            rows: vec![("whole", [15e9, 15e9, 90e9]), ("sharded", [15e9, 2e9, 3e9])],
            device: 80e9,
        };
        let svg = loads.svg("two choices");
        // Three colours' names, and for each choice three parts, a frame, and the frame's end at 80
        // GB.
        assert_eq!(svg.matches("<rect").count(), 3 + 2 * 5);
        assert!(
            svg.contains("width=\"286.8\"")
                && svg.contains(">120 GB ✗<")
                && svg.contains(">20.0 GB ✓<"),
            "{svg}"
        );
        // However much a choice takes, a choice of half of it has a bar of half the length.
        let rows = vec![("all", [400e9, 0.0, 0.0]), ("half", [200e9, 0.0, 0.0])];
        let svg = Loads { rows, ..loads }.svg("two that do not fit");
        assert!(svg.contains("width=\"478.0\"") && svg.contains("width=\"239.0\""), "{svg}");
    }
}

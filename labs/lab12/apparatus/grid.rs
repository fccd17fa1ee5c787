//! Who attends to whom: the chunks of a sequence, and the round of a ring in which they meet.

use kit::show::Screen;
use shardlab::parallel::context::Slicing;

/// A sequence in chunks, among the ranks that share it.
pub struct Grid {
    pub ranks: usize,
    pub slicing: Slicing,
    pub length: usize,
    /// Where documents begin, beside 0.
    pub documents: Vec<usize>,
}

/// What a chunk of queries does with a chunk of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// They meet in this round.
    Round(usize),
    /// All keys belong to earlier documents.
    OtherDocument,
    /// All keys are in the future.
    Future,
}

impl Grid {
    /// The number of chunks.
    pub fn chunks(&self) -> usize {
        self.slicing.chunks(self.ranks)
    }

    /// The rank that holds a chunk.
    pub fn owner(&self, chunk: usize) -> usize {
        match self.slicing {
            Slicing::ZigZag => chunk.min(2 * self.ranks - 1 - chunk),
            Slicing::Contiguous => chunk,
        }
    }

    /// What the queries of one chunk do with the keys of another.
    pub fn cell(&self, queries: usize, keys: usize) -> Cell {
        let size = self.length / self.chunks();
        let document =
            |position: usize| self.documents.iter().filter(|&&start| start <= position).count();
        if keys > queries {
            Cell::Future
        } else if document((keys + 1) * size - 1) < document(queries * size) {
            Cell::OtherDocument
        } else {
            let rounds = self.owner(queries) + self.ranks - self.owner(keys);
            Cell::Round(rounds % self.ranks)
        }
    }

    /// The grid, a row for each chunk of queries. A rank's chunks are marked by its number. Colours
    /// are ranks' as everywhere: a round has that of the rank whose keys come in it.
    pub fn draw(&self, screen: &Screen) -> String {
        let chunks = self.chunks();
        let dot = screen.either("·", ".");
        let mut lines = vec![screen.title("Which chunks meet, by the round of a ring", 2)];
        let of = |chunk: usize, text: String| screen.rank(self.owner(chunk), text);
        let numbers = (0..chunks).map(|chunk| of(chunk, format!("{:>3}", self.owner(chunk))));
        lines.push(format!("  keys of rank      {}", numbers.collect::<String>()));
        for queries in 0..chunks {
            let cell = |keys: usize| match self.cell(queries, keys) {
                Cell::Round(round) => of(keys, format!("{round:>3}")),
                Cell::OtherDocument => format!("{dot:>3}"),
                Cell::Future => "   ".to_string(),
            };
            let cells: String = (0..chunks).map(cell).collect();
            let owner = of(queries, format!("rank {}", self.owner(queries)));
            lines.push(format!("  queries of {owner} {}", cells.trim_end()).trim_end().to_string());
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk belongs to another document if its last position does: its first may.
    #[test]
    fn a_chunk_in_which_a_document_begins_is_met() {
        let slicing = Slicing::Contiguous;
        let grid = Grid { ranks: 3, slicing, length: 12, documents: vec![6] };
        let cells = |queries: usize| [0, 1, 2].map(|keys| grid.cell(queries, keys));
        assert_eq!(cells(0), [Cell::Round(0), Cell::Future, Cell::Future]);
        // The second chunk begins in the first document.
        assert_eq!(cells(1), [Cell::Round(1), Cell::Round(0), Cell::Future]);
        assert_eq!(cells(2), [Cell::OtherDocument, Cell::Round(1), Cell::Round(0)]);
    }
}

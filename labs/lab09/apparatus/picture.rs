//! The slices of parameters that ranks hold, as one line per job: every column is a share of the
//! elements.

use kit::show::{Screen, thousands};
use shardlab::checkpoint::universal::{Parameter, Slice, Universal};
use std::collections::BTreeMap;

/// Columns of the drawing, or fewer where the screen has no room for them.
const WIDTH: usize = 56;

/// A job's name, and the slices of each parameter.
type Held = (String, BTreeMap<String, Vec<Slice>>);

/// The jobs' slices of the whole model, and of each of these parameters.
pub fn pictures(screen: &Screen, saved: &Universal, jobs: &[Held], slices: &[String]) -> String {
    let parameters = &saved.parameters;
    let all: Vec<&str> = parameters.keys().map(String::as_str).collect();
    let title = "The rank that holds each slice, of all parameters end to end";
    let mut parts =
        vec![format!("\n{}", screen.wrap(title, 2)), picture(screen, parameters, &all, jobs)];
    for name in slices {
        parts.push(format!("\n  of {name} {:?}", parameters[name].shape));
        parts.push(picture(screen, parameters, &[name.as_str()], jobs));
    }
    parts.join("\n")
}

/// The jobs' slices of the parameters with these `names`, which follow each other. Each column is
/// one of equal shares of their elements, and shows the rank that holds the share's first element.
pub fn picture(
    screen: &Screen,
    all: &BTreeMap<String, Parameter>,
    names: &[&str],
    jobs: &[Held],
) -> String {
    let numel =
        |name: &str| all.get(name).map_or(0, |parameter| parameter.shape.iter().product::<usize>());
    let elements: usize = names.iter().map(|name| numel(name)).sum();
    let label = jobs.iter().map(|(job, _)| job.len()).max().unwrap_or(0);
    let end = format!("{} elements", thousands(elements as u64));
    let width = WIDTH.min(screen.width.saturating_sub(label + 4)).max(1);
    let mut lines = vec![format!("  {:label$}  0{end:>rest$}", "", rest = width - 1)];
    for (job, slices) in jobs {
        let mut holders = vec![None; width];
        let mut offset = 0;
        for name in names {
            for Slice { rank, elements: held } in slices.get(*name).into_iter().flatten() {
                // The columns whose first elements are in the slice.
                let column =
                    |element: usize| ((offset + element) * width).div_ceil(elements.max(1));
                holders[column(held.start)..column(held.end)].fill(Some(*rank));
            }
            offset += numel(name);
        }
        let digit = |rank: usize| char::from_digit(rank as u32 % 36, 36).unwrap_or('?');
        let cell = |holder: Option<usize>| {
            holder.map_or("?".to_string(), |rank| screen.rank(rank, digit(rank)))
        };
        let cells: String = holders.into_iter().map(cell).collect();
        lines.push(format!("  {job:label$}  {cells}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_shows_who_holds_it() {
        let parameter =
            |shape: &[usize]| Parameter { shape: shape.to_vec(), sha256: Default::default() };
        let all = BTreeMap::from([
            ("a".to_string(), parameter(&[2, 3])),
            ("b".to_string(), parameter(&[2])),
        ]);
        let slice = |rank, elements| Slice { rank, elements };
        let held = |a: &[Slice], b: &[Slice]| {
            BTreeMap::from([("a".to_string(), a.to_vec()), ("b".to_string(), b.to_vec())])
        };
        let jobs = [
            ("dp=3".to_string(), held(&[slice(0, 0..3), slice(1, 3..6)], &[slice(2, 0..2)])),
            (
                "tp=2".to_string(),
                held(
                    &[slice(1, 2..3), slice(0, 0..2), slice(0, 3..5), slice(1, 5..6)],
                    &[slice(0, 0..2)],
                ),
            ),
        ];
        let draw = |names: &[&str]| {
            picture(&Screen::plain(), &all, names, &jobs)
                .lines()
                .map(|line| line.trim_start().to_string())
                .collect::<Vec<_>>()
        };
        let line = |counts: &[(usize, usize)]| {
            counts
                .iter()
                .map(|&(rank, count)| rank.to_string().repeat(count))
                .collect::<String>()
        };
        let both = draw(&["a", "b"]);
        assert!(both[0].starts_with('0') && both[0].ends_with(" 8 elements"), "{}", both[0]);
        assert_eq!(both[1], format!("dp=3  {}", line(&[(0, 21), (1, 21), (2, 14)])));
        assert_eq!(
            both[2],
            format!("tp=2  {}", line(&[(0, 14), (1, 7), (0, 14), (1, 7), (0, 14)]))
        );
        assert_eq!(draw(&["b"])[1], format!("dp=3  {}", line(&[(2, 56)])));
        let narrow = Screen { width: 60, ..Screen::plain() };
        let narrow = picture(&narrow, &all, &["a", "b"], &jobs);
        assert!(narrow.lines().all(|line| line.len() == 60), "{narrow}");
    }
}

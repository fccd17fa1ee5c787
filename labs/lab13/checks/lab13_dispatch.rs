//! The check of lab13-dispatch: the sums of one rank that holds all experts, on more and more
//! uneven ranks, then the bytes that ranks send.

use exercise::{Choice, Experts, mixture};
use kit::check::{Evidence, is_near, run};
use kit::show::thousands;
use shardlab::comm::CommError;
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::sync::Mutex;

fn main() -> ExitCode {
    run(&[
        ("1 rank: what its experts make, weighted", |evidence| {
            let tokens = vec![[2, 0], [1, 3], [3, 2], [0, 1]];
            sums(evidence, &Case::new(4, vec![tokens]))
        }),
        ("2 ranks: copies go there and come back", |evidence| {
            let rank0 = vec![[0, 2], [3, 2], [1, 3]];
            let rank1 = vec![[1, 0], [2, 3], [3, 1]];
            sums(evidence, &Case::new(4, vec![rank0, rank1]))
        }),
        ("3 ranks: one of them gets most copies", |evidence| {
            let rank0 = vec![[5, 0], [5, 1], [4, 5], [0, 3]];
            let rank1 = vec![[2, 5], [5, 3]];
            let rank2 = vec![[1, 4], [5, 2], [3, 0]];
            sums(evidence, &Case::new(6, vec![rank0, rank1, rank2]))
        }),
        ("3 ranks: one has no tokens, one gets none", |evidence| {
            let rank0 = vec![[0, 2], [3, 1]];
            let rank2 = vec![[1, 3], [2, 0], [3, 2]];
            sums(evidence, &Case::new(6, vec![rank0, vec![], rank2]))
        }),
        ("4 ranks: only copies for other ranks travel", bytes),
    ])
}

/// Ranks, their tokens' experts, and how wide a token is.
struct Case {
    experts: usize,
    width: usize,
    /// By rank and token.
    chosen: Vec<Vec<[usize; 2]>>,
}

/// A token for one of its experts.
#[derive(Clone, Copy)]
struct Copied {
    rank: usize,
    token: usize,
    expert: usize,
    weight: f64,
    /// Whether it is the token's first one.
    first: bool,
}

impl Case {
    fn new(experts: usize, chosen: Vec<Vec<[usize; 2]>>) -> Case {
        Case { experts, width: 3, chosen }
    }

    fn ranks(&self) -> usize {
        self.chosen.len()
    }

    /// Experts of each rank.
    fn here(&self) -> usize {
        self.experts / self.ranks()
    }

    fn tokens(&self, rank: usize) -> Vec<Vec<f64>> {
        (0..self.chosen[rank].len()).map(|token| self.token(rank, token)).collect()
    }

    fn token(&self, rank: usize, token: usize) -> Vec<f64> {
        let number =
            |i: usize| (1.0 + 5.0 * rank as f64 + 1.7 * token as f64 + 2.3 * i as f64).sin();
        (0..self.width).map(number).collect()
    }

    /// The weights of a token's two experts, which add up to 1.
    fn choices(&self, rank: usize, token: usize) -> Vec<Choice> {
        let weight = 0.55 + 0.04 * ((3 * rank + token) % 11) as f64;
        let [first, second] = self.chosen[rank][token];
        vec![
            Choice { expert: first, weight },
            Choice { expert: second, weight: 1.0 - weight },
        ]
    }

    /// A rank's copies, token by token.
    fn copies(&self, rank: usize) -> Vec<Copied> {
        let of_token = |token: usize| {
            let both = self.choices(rank, token).into_iter().enumerate();
            both.map(move |(i, Choice { expert, weight })| Copied {
                rank,
                token,
                expert,
                weight,
                first: i == 0,
            })
        };
        (0..self.chosen[rank].len()).flat_map(of_token).collect()
    }

    /// A rank's copies in the order of their experts.
    fn sorted(&self, rank: usize) -> Vec<Copied> {
        let mut copies = self.copies(rank);
        copies.sort_by_key(|copied| copied.expert); // stable
        copies
    }

    /// What arrives at a rank, in the order of the ranks that sent it.
    fn arrived(&self, at: usize) -> Vec<Copied> {
        let sorted = (0..self.ranks()).flat_map(|rank| self.sorted(rank));
        sorted.filter(|copied| copied.expert / self.here() == at).collect()
    }
}

/// What an expert makes of a token: no two experts the same, and of a part of it not a part.
fn expert(number: usize, x: &[f64]) -> Vec<f64> {
    let number = number as f64;
    x.iter().map(|x| (number + 2.0) * (x + 0.7 * number).sin() + x * x).collect()
}

/// A way to be wrong, or the right one.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Right,
    /// Without weights, or with those of a mean.
    Unweighted,
    Mean,
    /// Weights count twice, both times after the experts or one time before them.
    Twice,
    BeforeAndAfter,
    /// The experts get weighted tokens.
    Before,
    /// Of a token's two results only one is left: that of the first choice, or the one that came
    /// last.
    First,
    Last,
    /// Only copies for the own experts, or only those for others.
    Own,
    Others,
    /// Copies leave in the order of tokens, with the counts of the order of experts.
    Unsorted,
    /// Results, in the order of experts, are taken for those in the order of tokens: of a token's
    /// choices, or of its choices by expert, or with the weights that belong to them.
    NotBack,
    NotBackByExpert,
    NotBackButWeights,
    /// What arrives is taken to be in the order of experts, as if one rank had sent it.
    ByExpert,
    /// Results go back in the order of experts, and not in that of arrival.
    BackByExpert,
}

/// What rank's tokens get, in some way.
fn result(case: &Case, way: Way) -> Vec<Vec<Vec<f64>>> {
    let zeros = |rank: usize| vec![vec![0.0; case.width]; case.chosen[rank].len()];
    let mut all: Vec<Vec<Vec<f64>>> = (0..case.ranks()).map(zeros).collect();
    for (copied, result) in results(case, way) {
        let own = copied.expert / case.here() == copied.rank;
        let weight = match way {
            Way::Unweighted => 1.0,
            Way::Mean => 0.5,
            Way::Twice => copied.weight * copied.weight,
            Way::Before => 1.0,
            Way::First if !copied.first => 0.0,
            Way::Own if !own => 0.0,
            Way::Others if own => 0.0,
            _ => copied.weight,
        };
        let sum = &mut all[copied.rank][copied.token];
        if way == Way::Last {
            sum.fill(0.0);
        }
        sum.iter_mut().zip(result).for_each(|(sum, x)| *sum += weight * x);
    }
    all
}

/// All copies, and the result that counts for each.
fn results(case: &Case, way: Way) -> Vec<(Copied, Vec<f64>)> {
    let x = |copied: &Copied| case.token(copied.rank, copied.token);
    let mut all = Vec::new();
    for rank in 0..case.ranks() {
        let sorted = case.sorted(rank);
        let mut copies = case.copies(rank);
        if way == Way::NotBackByExpert {
            copies.sort_by_key(|copied| (copied.token, copied.expert));
        }
        for (unsorted, sorted) in copies.into_iter().zip(sorted) {
            let right = expert(sorted.expert, &x(&sorted));
            all.push(match way {
                Way::Before | Way::BeforeAndAfter => {
                    let x: Vec<f64> = x(&sorted).iter().map(|x| sorted.weight * x).collect();
                    (sorted, expert(sorted.expert, &x))
                }
                Way::Unsorted => (unsorted, expert(sorted.expert, &x(&unsorted))),
                Way::NotBack | Way::NotBackByExpert => (unsorted, right),
                Way::NotBackButWeights => (Copied { weight: sorted.weight, ..unsorted }, right),
                _ => (sorted, right),
            });
        }
    }
    if !matches!(way, Way::ByExpert | Way::BackByExpert) {
        return all;
    }
    all.clear();
    for rank in 0..case.ranks() {
        let arrived = case.arrived(rank);
        let mut by_expert = arrived.clone();
        by_expert.sort_by_key(|copied| copied.expert); // stable
        for (arrived, by_expert) in arrived.iter().zip(&by_expert) {
            let result = match way {
                Way::ByExpert => expert(by_expert.expert, &x(arrived)),
                _ => expert(by_expert.expert, &x(by_expert)),
            };
            all.push((*arrived, result));
        }
    }
    all
}

/// What a rank returned, what it asked its experts, and the bytes that it sent.
struct Answer {
    rows: Vec<Vec<f64>>,
    /// The experts, and the lengths of the tokens for them.
    asked: Vec<(usize, usize)>,
    bytes: u64,
}

fn answers(evidence: &Evidence, case: &Case) -> Result<Vec<Answer>> {
    launch::run(case.ranks(), |comm| {
        let rank = comm.rank();
        let tokens = case.tokens(rank);
        let choices: Vec<Vec<Choice>> =
            (0..tokens.len()).map(|token| case.choices(rank, token)).collect();
        let chosen = match tokens.len() {
            0 => "which has no tokens".to_string(),
            _ => format!("whose tokens choose {:?}", case.chosen[rank]),
        };
        evidence.given(format!("rank {rank} of {}, {chosen}", case.ranks()));
        let asked = Mutex::new(Vec::new());
        let compute = |number: usize, x: &[f64]| {
            asked.lock().expect("no expert panics").push((number, x.len()));
            expert(number, x)
        };
        let experts = Experts { number: case.experts, width: case.width, compute: &compute };
        let before = comm.traffic();
        let rows = mixture(&comm, &tokens, &choices, &experts)?;
        let bytes = (comm.traffic() - before).bytes;
        let asked = asked.into_inner().expect("no expert panics");
        Ok(Answer { rows, asked, bytes })
    })
}

/// Explains why ranks could not go on together.
fn told(evidence: &mut Evidence, case: &Case, error: &str) {
    println!("{error}");
    let first = error.lines().next().unwrap_or_default();
    evidence.row(false, "the ranks", "exchange", first);
    if let Some([counted, there]) = rows_of_counts(case, error) {
        let of_some = |has: &dyn Fn(usize) -> [usize; 2]| {
            (0..case.ranks()).any(|rank| has(rank) == [counted, there])
        };
        let copies = |rank: usize| case.copies(rank).len();
        evidence.means_if(
            of_some(&|rank| [case.chosen[rank].len(), copies(rank)]),
            format!("You send {there} rows and announce {counted}: as many as there are tokens. A token leaves once for each of its choices."),
        );
        evidence.means_if(
            of_some(&|rank| [copies(rank), case.arrived(rank).len()]),
            format!(
                "You send {there} rows back and announce {counted}, those of the way there. As many rows leave as have arrived: on the \
                 way back `sends` and `expects` change places."
            ),
        );
        evidence.means(format!("You have {there} rows and announce {counted}. A row is a copy: one for each choice of each token."));
    }
    evidence.means_if(
        error.contains("must add up to"),
        "The counts of `all_to_all_v` are numbers, and a row has `width` of them. `sends` has to add up to what you send, and \
         `expects` to the room for what comes. On the way back both change places: as many numbers leave as have arrived.",
    );
    evidence.means_if(
        error.contains("which expects"),
        "A rank expects another number than comes. What a rank gets depends on other ranks' tokens, so it cannot count that \
         itself: first send your counts in an `all_to_all`. What you send to rank r is what rank r expects from you.",
    );
    evidence.means_if(
        error.contains("different calls") && error.matches("all_to_all (").count() > 1,
        "The parts of an `all_to_all` are as long on every rank. If each rank fills its parts up to its own largest one, they are not:          no rank knows the others' loads. `all_to_all_v` sends what there is.",
    );
    let empty = case.chosen.iter().any(Vec::is_empty);
    evidence.means_if(
        empty,
        "With tokens on every rank and for every rank this went well. A rank that has nothing to send, or nothing to compute, \
         takes part in every exchange all the same: the others wait for it.",
    );
    evidence.means(
        "The ranks met in different calls, or some in none. All of them make the same calls in the same order, whatever they have \
         to send.",
    );
}

/// The rows that counts announce, and those that there are, where both are whole rows.
fn rows_of_counts(case: &Case, error: &str) -> Option<[usize; 2]> {
    let number = |before: &str| {
        let (_, rest) = error.split_once(before)?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<usize>().ok().filter(|numbers| numbers % case.width == 0)
    };
    let both = [number(" ranks add up to ")?, number("must add up to the ")?];
    Some(both.map(|numbers| numbers / case.width))
}

fn sums(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let answers = match answers(evidence, case) {
        Err(error) if error.is::<CommError>() => {
            told(evidence, case, &format!("{error:#}"));
            return Ok(());
        }
        answers => answers?,
    };
    if asked(evidence, case, &answers) {
        compared(evidence, case, &answers);
    }
    Ok(())
}

/// Whether ranks have asked their own experts only, with whole tokens.
fn asked(evidence: &mut Evidence, case: &Case, answers: &[Answer]) -> bool {
    let here = case.here();
    for (rank, answer) in answers.iter().enumerate() {
        let foreign = answer.asked.iter().find(|(number, _)| number / here != rank);
        if let Some((number, _)) = foreign {
            let (first, last) = (rank * here, (rank + 1) * here - 1);
            let at = format!("rank {rank} asks an expert");
            evidence.row(false, at, format!("of {first} to {last}"), number);
            let all = answers.iter().enumerate();
            let each = |sign: &dyn Fn(usize, usize) -> bool| {
                all.clone()
                    .all(|(rank, of)| of.asked.iter().all(|(number, _)| sign(rank, *number)))
            };
            evidence.means_if(
                each(&|_, number| number < here),
                "An expert has its number among all experts. You count those of this rank, from 0 on: on which rank is that right?",
            );
            evidence.means_if(
                each(&|rank, number| number % case.ranks() == rank),
                "You deal experts like cards, 0 to rank 0, 1 to rank 1. They are held in rank order: rank 0 has the first ones, all \
                 side by side.",
            );
            evidence.means("This expert's matrices are on another rank. Send the token there.");
            return false;
        }
        if let Some((_, len)) = answer.asked.iter().find(|(_, len)| *len != case.width) {
            evidence.same(format!("rank {rank}: numbers of a token"), case.width, *len);
            evidence.means("An expert gets one token at a time: a row of `width` numbers.");
            return false;
        }
    }
    true
}

fn compared(evidence: &mut Evidence, case: &Case, answers: &[Answer]) {
    let right = result(case, Way::Right);
    for (rank, Answer { rows, .. }) in answers.iter().enumerate() {
        let tokens = case.chosen[rank].len();
        if rows.len() != tokens || rows.iter().any(|row| row.len() != case.width) {
            let found: Vec<usize> = rows.iter().map(Vec::len).collect();
            let expected = format!("{tokens} rows of {}", case.width);
            evidence.row(false, format!("rank {rank}"), expected, format!("rows of {found:?}"));
            evidence.means_if(
                rows.len() == 2 * tokens,
                "These are the results of all copies. A token has one row: the weighted sum of its two.",
            );
            evidence
                .means("The result has one row for each token of this rank, as wide as a token.");
            return;
        }
        let differs = |token: &usize| !same(&right[rank][*token], &rows[*token]);
        let Some(token) = (0..tokens).find(differs).or(tokens.checked_sub(1)) else {
            evidence.same(format!("rank {rank}: rows"), 0, rows.len());
            continue;
        };
        let number = |i: &usize| !is_near(right[rank][token][*i], rows[token][*i]);
        let i = (0..case.width).find(number).unwrap_or(0);
        let [first, second] = case.chosen[rank][token];
        let at = format!("rank {rank}: token {token}, of experts {first} and {second}");
        evidence.near(at, right[rank][token][i], rows[token][i]);
    }
    if evidence.agrees() {
        return;
    }
    let is = |way: Way| {
        let wrong = result(case, way);
        answers
            .iter()
            .zip(&wrong)
            .all(|(answer, wrong)| answer.rows.iter().zip(wrong).all(|(a, b)| same(b, a)))
    };
    evidence.means_if(
        is(Way::Unweighted),
        "The results of a token's experts are added up without their weights.",
    );
    evidence.means_if(
        is(Way::Mean),
        "This is the mean of a token's two results. The router has weighted them: multiply each by its choice's weight.",
    );
    evidence.means_if(
        is(Way::Twice),
        "Every result is multiplied by its weight twice. Either the rank that computes does it, or the one that adds up.",
    );
    evidence.means_if(
        is(Way::BeforeAndAfter),
        "The weight counts twice: the copy is multiplied by it before it leaves, and the result when it is back. Only the second is \
         right.",
    );
    evidence.means_if(
        is(Way::Before),
        "The experts get tokens that are multiplied by their weights. An expert is not linear, so half of a token does not give half \
         of the result: weight what comes back.",
    );
    evidence.means_if(
        is(Way::First),
        "Only the result of each token's first choice counts. Both experts compute, so add both.",
    );
    evidence.means_if(
        is(Way::Last),
        "Of a token's two results one is left, that which comes last: it takes the place of the other. Add it.",
    );
    evidence.means_if(
        is(Way::Unsorted),
        "Copies leave in the order of the tokens, and the counts say how many each expert gets: the first ones go to expert 0, \
         whatever they have chosen. Bring copies into the order of their experts first; sorted by rank alone is not enough.",
    );
    evidence.means_if(
        [Way::NotBack, Way::NotBackByExpert, Way::NotBackButWeights].map(is).contains(&true),
        "Results come back in the order in which copies left, that of the experts, and you take them for the order of the tokens. \
         Keep for each copy which token it is and which weight it has, in the order in which it leaves.",
    );
    evidence.means_if(
        is(Way::Own),
        "Only this rank's own experts count. Copies for other ranks' experts have to leave, and their results to come back.",
    );
    evidence.means_if(
        is(Way::Others),
        "Only other ranks' experts count. A rank's copies for its own experts are missing: they are its part for itself.",
    );
    evidence.means_if(
        is(Way::ByExpert),
        "What has arrived is computed as if it lay in the order of the experts. It is so for one rank's copies: after those of rank \
         0 for all experts here come those of rank 1, which begin with the first expert again.",
    );
    evidence.means_if(
        is(Way::BackByExpert),
        "The experts compute the right rows, and results go back in the order of the experts. The ranks want them in the order in \
         which copies have arrived: those of rank 0 first. Put them back.",
    );
    let copies = case.chosen.iter().map(Vec::len).sum::<usize>() * 2;
    let computed: usize = answers.iter().map(|answer| answer.asked.len()).sum();
    evidence.means_if(
        computed != copies,
        format!("The experts were asked {computed} times, and there are {copies} copies: one for each choice of each token."),
    );
    evidence.means(
        "Each token's row is the sum of what its two experts make of it, each times its weight. Follow one token: which place has its \
         copy in what leaves, in what arrives, and in what comes back?",
    );
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(*a, *b))
}

fn bytes(evidence: &mut Evidence) -> Result<()> {
    let chosen = |rank: usize, token: usize| {
        let first = 3 * token + rank;
        [first % 8, (first + 1 + token % 5) % 8]
    };
    let of_rank = |rank: usize| (0..16).map(|token| chosen(rank, token)).collect();
    let case = Case { experts: 8, width: 64, chosen: (0..4).map(of_rank).collect() };
    let row = (case.width * size_of::<f64>()) as u64;
    // Counts: one for each of the other ranks' experts, then what the two exchanges compare.
    let others = case.ranks() - 1;
    let counts = ((others * case.here() + 2 * others * 2 * case.ranks()) * size_of::<u64>()) as u64;
    let mut most = 0;
    let mut least = 0;
    for (rank, answer) in answers(evidence, &case)?.iter().enumerate() {
        let leave = case.copies(rank);
        let leave = leave.iter().filter(|copied| copied.expert / case.here() != rank).count();
        let arrived = case.arrived(rank);
        let arrived = arrived.iter().filter(|copied| copied.rank != rank).count();
        let needed = (leave + arrived) as u64 * row;
        // A few numbers may go along with each copy.
        evidence.row(
            answer.bytes <= needed + needed / 8 + 2 * counts,
            format!("bytes that rank {rank} sends for {leave} copies and {arrived} results"),
            thousands(needed + counts),
            thousands(answer.bytes),
        );
        most = most.max(answer.bytes);
        least = least.max(needed + counts);
    }
    evidence.means(
        "Everything is right, and ranks send more than they must. A copy leaves for its expert's rank only, and its result comes back to \
         one rank only. If all ranks get all tokens, that is the lab's way: right as well, and the more ranks, the more of it is for nothing.",
    );
    evidence.figure("bytes that a rank sends", most, least);
    Ok(())
}

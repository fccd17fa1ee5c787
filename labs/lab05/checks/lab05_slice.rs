//! The check of lab05-slice: eight ranks build the library's MLP, and say how much of it they hold.

use exercise::slice_of_c;
use kit::check::{Evidence, run};
use shardlab::model::Gpt;
use shardlab::parallel::TensorParallel;
use shardlab::plan::{Family, ModelShape};
use shardlab::{Result, launch};
use std::process::ExitCode;

const RANKS: usize = 8;
const WIDTH: usize = 4096;
const HIDDEN: usize = 4 * WIDTH;

pub fn main() -> ExitCode {
    run(&[("one rank's slice of C", slice)])
}

/// The slice of C on each rank of a model with one block, which allocates nothing. Weights are
/// stored transposed.
fn held() -> Result<Vec<[usize; 2]>> {
    launch::run(RANKS, |comm| {
        let shape = ModelShape {
            vocabulary: RANKS,
            block: RANKS,
            layers: 1,
            heads: RANKS,
            embd: WIDTH,
            family: Family::Gpt,
            experts: None,
        };
        let gpt = Gpt::build(&shape, &TensorParallel::new(comm))?;
        let specs = gpt.params.specs();
        let c = specs.iter().find(|spec| spec.name == "blocks.0.out.weight");
        let shape = &c.expect("the MLP's second matrix").shape;
        Ok([shape[1], shape[0]])
    })
}

fn slice(evidence: &mut Evidence) -> Result<()> {
    let got = slice_of_c();
    let shape = |[rows, columns]: [usize; 2]| format!("{rows} x {columns}");
    // Every rank has the same shape.
    evidence.answer("C on one rank", shape(held()?[0]), shape(got));
    evidence.means_if(got == [HIDDEN, WIDTH], "This is the whole matrix: the ranks share nothing.");
    evidence.means_if(
        got == [HIDDEN, WIDTH / RANKS],
        "These are columns of C. They need all columns of gelu(X A), and a rank has an eighth of those: the ranks would have to \
         communicate between the two matrices.",
    );
    evidence.means_if(
        got == [WIDTH, HIDDEN / RANKS],
        "A rank's slice of A has this shape. C is not cut as A is.",
    );
    evidence.means_if(
        got == [HIDDEN / RANKS, WIDTH / RANKS],
        "Rows and columns are both cut: eight such pieces are only an eighth of C.",
    );
    evidence.means_if(
        got == [WIDTH / RANKS, WIDTH] || got == [WIDTH, WIDTH / RANKS],
        "This is an eighth of a matrix of 4096 x 4096. C is larger.",
    );
    evidence.means_if(got == [WIDTH / RANKS, HIDDEN], "This has as many columns as A. C has 4096.");
    evidence.means(
        "A rank has some columns of gelu(X A). Which part of C do they need, if nothing is sent between the two matrices?",
    );
    Ok(())
}

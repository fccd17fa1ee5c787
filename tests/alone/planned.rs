//! The planner's bytes against what the ranks of labs 04 to 07 hold.

use crate::alone;
use lab11::Training;
use lab11::strategy::{Cluster, Device, Strategy};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::plan::{Family, ModelShape};

/// The labs' jobs: what state and activations take on each rank, within 5% of the plan.
#[test]
fn the_planner_foresees_the_bytes_of_labs_04_to_07() {
    if !alone("planned::the_planner_foresees_the_bytes_of_labs_04_to_07") {
        return;
    }
    launch::one_compute_thread_a_rank();
    let corpus = Corpus::embedded().unwrap();
    let shape = |layers, embd, block| ModelShape {
        vocabulary: 65,
        block,
        layers,
        heads: 4,
        embd,
        family: Family::Gpt,
    };
    let thin = shape(12, 64, 64);
    let baby = shape(4, 128, 64);
    let deep = shape(8, 64, 32);
    // A wider model, because the inputs of thin layers are not much larger than candle's own notes
    // about them.
    let wide = shape(8, 256, 32);
    let mut wrong = Vec::new();
    let cluster = Cluster::new(Device::named("laptop").unwrap(), "ethernet").unwrap();
    for (lab, shape, dropout, batch, plan) in [
        ("lab04", thin, 0.0, 48, "dp=4,mb=12,zero=0"),
        ("lab04", thin, 0.0, 48, "dp=4,mb=12,zero=1"),
        ("lab04", thin, 0.0, 48, "dp=4,mb=12,zero=2"),
        ("lab04", thin, 0.0, 48, "dp=4,mb=12,zero=3"),
        ("lab05", baby, 0.1, 12, "mb=12"),
        ("lab05", baby, 0.1, 12, "tp=2,mb=12"),
        ("lab05", baby, 0.1, 12, "tp=2,mb=12,sp"),
        ("lab06", deep, 0.0, 16, "pp=4,mb=2"),
        ("lab06", deep, 0.0, 16, "pp=4,mb=2,chunks=2"),
        ("lab06", wide, 0.0, 16, "pp=4,mb=2,recompute=full"),
        ("lab07", baby, 0.0, 16, "dp=2,tp=2,pp=2,mb=2,zero=1"),
    ] {
        let strategy: Strategy = plan.parse().unwrap();
        let training = Training { shape, dropout, batch, strategy };
        let job = training.job(&cluster);
        for (stage, held) in training.run(&corpus, 2, 1).unwrap().held {
            let planned = training.planned(&job, stage);
            for (of, is, says) in [
                ("state", held.state, planned.state),
                ("activations", held.activations, planned.activations),
            ] {
                if (says / is - 1.0).abs() >= 0.05 {
                    wrong.push(format!(
                        "{lab} {plan}, stage {stage}: {of} {is} bytes, planned {says}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

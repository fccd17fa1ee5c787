use shardlab::train::{Config, Training};
use shardlab::{data::Corpus, launch, parallel::Strategy};

fn main() -> std::process::ExitCode {
    launch::main(|| {
        let corpus = Corpus::embedded()?;
        let strategy: Strategy = "dp=2,tp=2,zero=1".parse()?; // two replicas, each cut in two
        let config = Config::small(strategy.data, &corpus);
        launch::run(strategy.ranks(), |comm| {
            let mut training = Training::new(&config, &strategy, &comm)?;
            for step in 0..config.steps {
                let loss = training.step(&corpus.train, step)?.loss;
                println!("rank {}, step {step}: loss {loss:.4}", comm.rank());
            }
            Ok(())
        })?;
        Ok(())
    })
}

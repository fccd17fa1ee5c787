//! What is said twice: each row of the table on the page about checkpoints has a test, here or
//! where what it names is tested.

use super::book::rust_files;
use crate::suite::llama::{SHAPE, loaded, write_folder};
use crate::suite::program::ROOT;
use labs::lab10::pretrained::Pretrained;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::Path;

/// A row's first two cells, and the test that holds its third.
const ROWS: [(&str, &str, &str); 27] = [
    (
        "`config.json`, sizes",
        "the weights' shapes",
        "bad_folders_are_refused_by_what_is_wrong",
    ),
    (
        "`config.json`, `num_hidden_layers`",
        "its lists with an entry for each layer, such as `layer_types`",
        "a_list_has_an_entry_for_each_layer",
    ),
    (
        "`config.json`, its experts and norms",
        "the weights' names",
        "experts_and_norms_are_those_of_both_files",
    ),
    (
        "`config.json`, `torch_dtype`",
        "the type of each stored tensor",
        "a_tensors_own_type_goes_first",
    ),
    (
        "`config.json`, `tie_word_embeddings`",
        "a head among the weights",
        "a_head_of_its_own_is_the_head",
    ),
    (
        "`config.json`, `rope_theta`",
        "its `rope_parameters`",
        "two_tables_of_rope_must_agree",
    ),
    (
        "`config.json`, `layer_types`",
        "its `sliding_window_pattern` or `max_window_layers`",
        "a_list_of_windows_is_compared_with_its_rule",
    ),
    (
        "`config.json`, the end of a text",
        "`generation_config.json`",
        "a_folders_tokenizer_begins_texts_and_streams_them",
    ),
    (
        "`config.json`, RoPE's frequencies",
        "those among the weights",
        "frequencies_among_the_weights_are_compared",
    ),
    (
        "`model.safetensors`",
        "its index, and other weights in the folder",
        "weights_that_are_not_read_are_named",
    ),
    (
        "`model.safetensors.index.json`, the file of a tensor",
        "the header of that file",
        "an_index_names_the_file_of_each_tensor",
    ),
    (
        "`tokenizer.json`, how many tokens",
        "the rows of the table",
        "a_folders_tokenizer_begins_texts_and_streams_them",
    ),
    (
        "GGUF, its keys and its tokens",
        "its tensors, and `config.json` beside it",
        "a_config_beside_a_gguf_file_agrees_with_it",
    ),
    (
        "GGUF, its tokens, and the one that begins a text",
        "`tokenizer.json`",
        "a_gguf_files_tokens_are_the_tokenizers",
    ),
    (
        "GGUF, the end of a text",
        "`config.json` or `generation_config.json` beside it",
        "a_gguf_files_end_of_a_text_is_read_or_told",
    ),
    (
        "GGUF, `rope_freqs.weight`",
        "`config.json`, RoPE's scaling",
        "a_scaling_that_only_one_of_two_files_knows_is_no_secret",
    ),
    (
        "GGUF, where each tensor begins, and its keys",
        "its alignment, and the other tensors and keys",
        "tensors_of_a_gguf_file_stand_apart",
    ),
    (
        "a checkpoint's manifest",
        "its files",
        "damage_is_found_and_the_next_good_checkpoint_is_taken",
    ),
    (
        "a checkpoint's manifest",
        "this run: model, ranks, strategy, seed, settings",
        "other_settings_are_told_and_need_a_flag",
    ),
    (
        "`latest`",
        "the checkpoints beside it",
        "latest_goes_first_and_one_that_is_gone_does_not_count",
    ),
    (
        "`progress.jsonl`",
        "the checkpoint that is resumed",
        "only_the_last_attempts_steps_after_the_checkpoint_are_lost",
    ),
    (
        "a recorded run, a step's loss",
        "another line with that step",
        "a_recorded_run_has_each_step_once",
    ),
    (
        "`SLURM_TASKS_PER_NODE`",
        "`SLURM_NTASKS`",
        "what_slurm_granted_goes_before_what_was_asked_for",
    ),
    (
        "`SLURM_JOB_NUM_NODES`, PBS's numbers",
        "the list of nodes",
        "wrong_jobs_are_refused_in_words",
    ),
    ("the scheduler's nodes", "`--hostfile`", "each_launcher_has_flags_of_its_own"),
    ("`--ranks`", "`mpirun -n`", "ranks_must_be_the_jobs"),
    (
        "one rank's flags",
        "those of the others",
        "ranks_with_different_settings_do_not_begin",
    ),
];

#[test]
fn each_row_of_the_table_has_a_test() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("book/src/checkpoints.md")).unwrap();
    let (_, table) = page.split_once("| it is said in | and again in | if they differ |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string()).collect()
    };
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    let named: Vec<[&str; 2]> = ROWS.iter().map(|(one, other, _)| [*one, other]).collect();
    let shown: Vec<[&str; 2]> = rows.iter().map(|row| [row[0].as_str(), &row[1]]).collect();
    assert_eq!(named, shown);
    let folders = [
        "tests",
        "crates/shapes",
        "labs/lab00",
        "labs/lab08",
        "labs/lab10",
        "labs/kit",
        "src/checkpoint",
    ];
    let files = folders.iter().flat_map(|folder| rust_files(&Path::new(ROOT).join(folder)));
    let sources: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    for (_, _, test) in ROWS {
        // Those over MPI are no functions.
        let forms = [format!("fn {test}()"), format!("test(\"{test}\"")];
        let is_here = |source: &String| forms.iter().any(|form| source.contains(form));
        assert!(sources.iter().any(is_here), "no test is called {test}");
    }
}

/// Changes a folder's config.json.
fn with_config(dir: &Path, change: impl FnOnce(&mut Value)) {
    let path = dir.join("config.json");
    let mut config = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

#[test]
fn a_tensors_own_type_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &SHAPE).unwrap();
    let values = loaded(dir.path()).unwrap().1;
    for key in ["torch_dtype", "dtype"] {
        with_config(dir.path(), |config| config[key] = "float16".into());
        assert_eq!(loaded(dir.path()).unwrap().1, values, "{key}");
    }
}

fn refused(dir: &Path) -> String {
    Pretrained::open(dir).err().expect("two descriptions differ").to_string()
}

#[test]
fn a_list_has_an_entry_for_each_layer() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &SHAPE).unwrap();
    for more in [0, 1] {
        let list = vec!["full_attention"; SHAPE.layers + more];
        with_config(dir.path(), |config| config["layer_types"] = list.into());
        match more {
            0 => drop(loaded(dir.path()).unwrap()),
            _ => assert!(refused(dir.path()).contains("layer_types has 5 entries for 4 layers")),
        }
    }
}

/// Rewrites the only weights file of a folder, with these tensors more, of one number each.
fn with_tensors(dir: &Path, more: &[&str]) {
    let path = dir.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let one = [0u8; 4];
    let more = more
        .iter()
        .map(|name| (name.to_string(), TensorView::new(Dtype::F32, vec![1], &one).unwrap()));
    let all: Vec<(String, TensorView)> = file.tensors().into_iter().chain(more).collect();
    std::fs::write(&path, safetensors::serialize(all, None).unwrap()).unwrap();
}

/// A configuration without experts and weights with some, a norm without biases and one with.
#[test]
fn experts_and_norms_are_those_of_both_files() {
    for name in [
        "model.layers.0.block_sparse_moe.experts.0.w1.weight",
        "model.layers.0.mlp.experts.3.gate_proj.weight",
        "model.layers.1.input_layernorm.bias",
        "model.layers.1.self_attn.q_norm.weight",
    ] {
        let dir = tempfile::tempdir().unwrap();
        write_folder(dir.path(), &SHAPE).unwrap();
        with_tensors(dir.path(), &[name]);
        let error = refused(dir.path());
        assert!(error.contains("unexpected tensors") && error.contains(name), "{error}");
    }
}

#[test]
fn an_index_names_the_file_of_each_tensor() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &SHAPE).unwrap();
    let one = "model-00001-of-00001.safetensors";
    std::fs::rename(dir.path().join("model.safetensors"), dir.path().join(one)).unwrap();
    let bytes = std::fs::read(dir.path().join(one)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut map: serde_json::Map<String, Value> =
        file.names().into_iter().map(|name| (name.to_string(), one.into())).collect();
    let index = |map: &serde_json::Map<String, Value>| {
        let text = serde_json::json!({ "weight_map": map }).to_string();
        std::fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
    };
    index(&map);
    loaded(dir.path()).unwrap();
    map.insert("model.layers.9.mlp.up_proj.weight".into(), one.into());
    index(&map);
    let error = refused(dir.path());
    assert!(
        error.contains("model.layers.9.mlp.up_proj.weight is in no file, not in "),
        "{error}"
    );
    map.remove("model.layers.9.mlp.up_proj.weight");
    // The headers have it, and the index is the shorter one: nothing is missing.
    map.remove("model.norm.weight");
    index(&map);
    loaded(dir.path()).unwrap();
}

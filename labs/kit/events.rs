//! TensorBoard's event files: each figure of a run's steps as a curve.
//!
//! A file is a list of
//! [TFRecords](https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details):
//! bytes, between their length and checksums. The bytes are an `Event` of TensorBoard's
//! [event.proto](https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto),
//! in the [encoding of Protocol Buffers](https://protobuf.dev/programming-guides/encoding/). The
//! fields written here:
//!
//! ```text
//! Event    wall_time: double = 1  step: int64 = 2  file_version: string = 3  summary: Summary = 5
//! Summary  value: repeated Value = 1
//! Value    tag: string = 1   simple_value: float = 2
//! ```

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use shardlab::error::BadInput;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// TensorBoard looks for files with this in their names.
const PREFIX: &str = "events.out.tfevents.";

/// Where other writers name the host. It tells this writer's files from others' in the same folder.
const WRITER: &str = ".shardlab.";

/// The fields of a record that count its steps. lab02 counts iterations.
const STEPS: [&str; 2] = ["step", "iter"];

/// The event file of one run.
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Starts the event file of the run that writes `metrics`, in a folder of its own beside that
    /// file: TensorBoard takes each folder for a run. What an earlier run wrote there is removed,
    /// so that no curve shows two runs.
    pub fn create(metrics: &Path) -> Result<EventFile, BadInput> {
        let folder = folder_of(metrics);
        start(&folder).map_err(|error| {
            let folder = folder.display();
            let what = format!("cannot write TensorBoard's events to the folder {folder}: {error}");
            BadInput::new(what, "give --metrics a file beside which this folder can be")
        })
    }

    /// Appends a point to the curve of each number in `record`. What is null has no point, and JSON
    /// has null for NaN and infinity, too: so the curves have the points of the JSON lines, and no
    /// others.
    pub fn write(&mut self, record: &Map<String, Value>) -> Result<()> {
        let step = STEPS.iter().find_map(|name| record.get(*name)?.as_u64());
        let step = step.context("a record of --metrics does not count its steps")?;
        let mut summary = Vec::new();
        for (tag, value) in record {
            if let Some(number) = value.as_f64().filter(|_| !STEPS.contains(&tag.as_str())) {
                let mut value = bytes(1, tag.as_bytes());
                value.extend(float(2, number as f32));
                summary.extend(bytes(1, &value));
            }
        }
        self.append(&[varint(2, step), bytes(5, &summary)].concat())
            .with_context(|| format!("cannot write to {}", self.path.display()))
    }

    /// Appends an event with these fields and the time. The operating system has it when this
    /// returns.
    fn append(&mut self, fields: &[u8]) -> io::Result<()> {
        let event = [&double(1, seconds()), fields].concat();
        self.file.write_all(&framed(&event))
    }
}

/// The folder of a run's event file: `runs/a.events` for `runs/a.jsonl`. Dots in other names stay,
/// as in `lr0.1`.
fn folder_of(metrics: &Path) -> PathBuf {
    let is_json = metrics.extension().is_some_and(|ending| ending == "jsonl");
    let stem = if is_json {
        metrics.file_stem()
    } else {
        metrics.file_name()
    };
    let mut name = OsString::from(stem.unwrap_or_default());
    name.push(".events");
    metrics.with_file_name(name)
}

fn start(folder: &Path) -> io::Result<EventFile> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.contains(WRITER) {
            fs::remove_file(entry.path())?;
        }
    }
    let name = format!("{PREFIX}{}{WRITER}{}", seconds() as u64, std::process::id());
    let path = folder.join(name);
    let file = File::create(&path)?;
    let mut events = EventFile { path, file };
    events.append(&bytes(3, b"brain.Event:2"))?;
    Ok(events)
}

/// Seconds since 1970.
fn seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// A TFRecord: the length of `data`, its checksum, `data`, its checksum.
fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [
        &length,
        &masked(crc32c(&length)).to_le_bytes()[..],
        data,
        &masked(crc32c(data)).to_le_bytes(),
    ]
    .concat()
}

/// A checksum as TFRecords store it. The mask keeps apart the checksums of records that contain
/// checksums.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C, Castagnoli's polynomial, bit by bit: a step's record is short.
fn crc32c(data: &[u8]) -> u32 {
    let mut crc = !0;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0x82f6_3b78;
            }
        }
    }
    !crc
}

// The fields of a message: a key, which has the field's number and how its value is written, and
// the value.

fn varint(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    push_varint(&mut bytes, value);
    bytes
}

fn double(field: u8, value: f64) -> Vec<u8> {
    [&[field << 3 | 1][..], &value.to_le_bytes()].concat()
}

/// A text or a message.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![field << 3 | 2];
    push_varint(&mut bytes, value.len() as u64);
    bytes.extend(value);
    bytes
}

fn float(field: u8, value: f32) -> Vec<u8> {
    [&[field << 3 | 5][..], &value.to_le_bytes()].concat()
}

/// Seven bits per byte, the lowest first. The eighth bit of a byte says that more follow.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{MetricsFile, Rates, StepOutcome, StepTimes};
    use serde_json::json;

    /// An event as it is read: its step, and its numbers with their tags.
    type Point = (u64, Vec<(String, f32)>);

    /// A field's value.
    enum Field<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    impl<'a> Field<'a> {
        fn number(&self) -> u64 {
            match self {
                Field::Number(number) => *number,
                Field::Bytes(bytes) => panic!("no number: {bytes:?}"),
            }
        }

        fn bytes(&self) -> &'a [u8] {
            match self {
                Field::Number(number) => panic!("no bytes: {number}"),
                Field::Bytes(bytes) => bytes,
            }
        }
    }

    fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
        rest.split_off(..count).expect("the file is whole")
    }

    fn take_number(rest: &mut &[u8], count: usize) -> u64 {
        let mut number = [0; 8];
        number[..count].copy_from_slice(take(rest, count));
        u64::from_le_bytes(number)
    }

    fn take_varint(rest: &mut &[u8]) -> u64 {
        let mut value = 0;
        for at in 0.. {
            let byte = take(rest, 1)[0];
            value |= u64::from(byte & 127) << (7 * at);
            if byte < 128 {
                break;
            }
        }
        value
    }

    /// The fields of a message, with their numbers.
    fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
        let rest = &mut message;
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let key = take_varint(rest);
            let field = match key & 7 {
                0 => Field::Number(take_varint(rest)),
                1 => Field::Number(take_number(rest, 8)),
                2 => {
                    let length = take_varint(rest) as usize;
                    Field::Bytes(take(rest, length))
                }
                5 => Field::Number(take_number(rest, 4)),
                kind => panic!("fields of kind {kind} are not written"),
            };
            fields.push((key >> 3, field));
        }
        fields
    }

    /// The events of the one file in a folder, as a reader of TensorBoard's format finds them.
    /// Checksums that are wrong are a panic, and so is a time that is not now.
    fn read(folder: &Path) -> Vec<Point> {
        let files: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let name = files[0].file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("events.out.tfevents."), "{name}");
        let file = fs::read(&files[0]).unwrap();
        let rest = &mut &file[..];
        let mut points = Vec::new();
        let mut count = 0;
        while !rest.is_empty() {
            let length = take(rest, 8);
            assert_eq!(take_number(rest, 4), checksum(length));
            let data = take(rest, take_number(&mut &length[..], 8) as usize);
            assert_eq!(take_number(rest, 4), checksum(data));
            let event = fields(data);
            let [(1, time), what @ ..] = &event[..] else {
                panic!("an event begins with its time");
            };
            let time = f64::from_bits(time.number());
            assert!((seconds() - time).abs() < 600.0, "{time}");
            match what {
                [(3, version)] if count == 0 => assert_eq!(version.bytes(), b"brain.Event:2"),
                [(2, step), (5, summary)] if count > 0 => {
                    let values = fields(summary.bytes()).into_iter().map(|(field, value)| {
                        assert_eq!(field, 1);
                        match &fields(value.bytes())[..] {
                            [(1, tag), (2, number)] => (
                                String::from_utf8(tag.bytes().to_vec()).unwrap(),
                                f32::from_bits(number.number() as u32),
                            ),
                            _ => panic!("a value is a tag and a number"),
                        }
                    });
                    points.push((step.number(), values.collect()));
                }
                _ => panic!("event {count} has other fields"),
            }
            count += 1;
        }
        points
    }

    /// The checksum of `data`, from TensorFlow's definition of the mask, in numbers of 64 bits.
    fn checksum(data: &[u8]) -> u64 {
        let crc = u64::from(crc32c(data));
        ((crc >> 15 | crc << 17 & 0xffff_ffff) + 0xa282_ead8) & 0xffff_ffff
    }

    fn write(file: &mut EventFile, record: Value) {
        file.write(record.as_object().unwrap()).unwrap();
    }

    /// The values of the CRC catalogue and of RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_those_of_others() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    /// Two events as TensorBoard 2.21's own `RecordWriter` writes them.
    #[test]
    fn the_bytes_are_those_of_tensorboards_writer() {
        let version = [double(1, 1.5), bytes(3, b"brain.Event:2")].concat();
        let values = [("loss", 3.25), ("lr", 0.5)]
            .map(|(tag, number)| bytes(1, &[bytes(1, tag.as_bytes()), float(2, number)].concat()));
        let step = [double(1, 2.5), varint(2, 300), bytes(5, &values.concat())].concat();
        let hex: String = [framed(&version), framed(&step)]
            .concat()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c\
             2600000000000000734fe30009000000000000044010ac022a180a0b0a046c6f737315000050400a\
             090a026c72150000003fbaef9308"
        );
    }

    #[test]
    fn numbers_become_points_of_their_step() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = EventFile::create(&dir.path().join("m.jsonl")).unwrap();
        let folder = dir.path().join("m.events");
        assert_eq!(read(&folder), []);
        write(
            &mut file,
            json!({ "step": 1, "loss": 0.1, "val_loss": null, "skipped": false, "count": 7 }),
        );
        write(&mut file, json!({ "iter": 0, "warmup": true, "loss": f64::NAN }));
        write(&mut file, json!({ "step": 70_000_000_000_u64, "lr": -1e-5 }));
        let of = |tag: &str, number| (tag.to_string(), number);
        // The file is still open: what was written can be read.
        assert_eq!(
            read(&folder),
            [
                (1, vec![of("count", 7.0), of("loss", 0.1)]),
                (0, vec![]),
                (70_000_000_000, vec![of("lr", -1e-5)]),
            ]
        );
        let no_step = json!({ "loss": 1.0 });
        assert!(file.write(no_step.as_object().unwrap()).is_err());
    }

    #[test]
    fn tensorboard_gets_the_figures_of_the_json_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut file = MetricsFile::create(Some(&path)).unwrap();
        let rates = Rates {
            ranks: 2,
            tokens: 1536,
            block: 64,
            flops_per_token: 5_200_000,
            peak: 1e11,
        };
        for step in 1..=20 {
            let outcome = StepOutcome { step, loss: 4.0 / step as f64, grad_norm: 1.5, lr: 1e-3 };
            let times = StepTimes { forward: 0.1 * step as f64, ..StepTimes::default() };
            let mut record = rates.record(outcome, outcome.loss, &times);
            record.val_loss = step.is_multiple_of(10).then_some(0.5);
            file.write(&record).unwrap();
        }
        let points = read(&dir.path().join("m.events"));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 20);
        assert_eq!(points.len(), 20);
        for (line, (step, numbers)) in text.lines().zip(points) {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["step"], step);
            assert_eq!(numbers.len(), if step.is_multiple_of(10) { 12 } else { 11 });
            for (tag, number) in numbers {
                assert_eq!(line[&tag].as_f64().unwrap() as f32, number, "{tag}");
            }
        }
    }

    #[test]
    fn a_new_run_removes_the_old_ones_points_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = dir.path().join("m.jsonl");
        let folder = dir.path().join("m.events");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("events.out.tfevents.1700000000.shardlab.5"), "old").unwrap();
        let mut file = EventFile::create(&metrics).unwrap();
        write(&mut file, json!({ "step": 1, "loss": 2.0 }));
        assert_eq!(read(&folder).len(), 1);
        let mut file = EventFile::create(&metrics).unwrap();
        write(&mut file, json!({ "step": 9, "loss": 3.0 }));
        assert_eq!(read(&folder), [(9, vec![("loss".to_string(), 3.0)])]);

        let others = ["events.out.tfevents.1700000000.host.5", "notes.shardlab.txt"];
        for name in others {
            fs::write(folder.join(name), "mine").unwrap();
        }
        EventFile::create(&metrics).unwrap();
        for name in others {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "mine");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn each_file_of_metrics_has_a_folder() {
        for (metrics, folder) in [
            ("runs/a.jsonl", "runs/a.events"),
            ("a.json", "a.json.events"),
            ("m", "m.events"),
            ("runs/lr0.1", "runs/lr0.1.events"),
            ("lr0.3.jsonl", "lr0.3.events"),
            ("m.events", "m.events.events"),
        ] {
            assert_eq!(folder_of(Path::new(metrics)), Path::new(folder));
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("m.events"), "a file").unwrap();
        let Err(error) = EventFile::create(&dir.path().join("m.jsonl")) else {
            panic!("a file is no folder");
        };
        assert!(error.what.contains("m.events: "), "{}", error.what);
        assert!(error.help.contains("--metrics"), "{}", error.help);
    }
}

//! How the parts of tensor parallelism are joined: rules by patterns of names, which the training
//! program has recorded.

use super::affine::Map;
use crate::torch::{Node, Value};
use fancy_regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// No dimension has more elements.
const ABSURD: u64 = 1 << 40;

/// Patterns of one list, and those of them that are large when they are compiled.
const PATTERNS: usize = 1 << 14;
const LARGE: usize = 100;

/// A pattern of names, and whether a name has matched it.
struct Pattern {
    text: String,
    regex: Regex,
    used: AtomicBool,
}

/// A dimension of a parameter that consists of several.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Size {
    /// A size; -1 is whatever is left.
    One(i64),
    /// The sizes of the parameters inside.
    Several(Vec<usize>),
}

/// A parameter that consists of several: the shape of all, and the dimension that ranks divide.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inner {
    pub patterns: Vec<String>,
    pub shape: Vec<Size>,
    pub dim: usize,
    /// For each parameter inside, each rank's part of `dim`.
    pub widths: Option<Vec<Vec<usize>>>,
}

/// The way to join the parts of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// All ranks have the same.
    Replicated,
    Average,
    /// One rank's part follows the other along a dimension.
    Joined(usize),
    /// Two parameters in one: all ranks' first halves, then all second halves.
    Halves,
    Inner(Inner),
    /// Blocks, by DeepSpeed's map.
    Map(Map),
}

/// Without rules all parts are joined along the first dimension.
#[derive(Default)]
pub(crate) struct Rules {
    /// Whether the program has recorded any.
    pub recorded: bool,
    replicated: Vec<Pattern>,
    averaged: Vec<Pattern>,
    rows: Vec<Pattern>,
    vocabulary: Vec<Pattern>,
    halves: Vec<Pattern>,
    inner: Vec<(Vec<Pattern>, Inner)>,
    /// Patterns, each with its map. A map counts more than all other rules.
    maps: Vec<(Pattern, Map)>,
    /// Parameters that several stages of a pipeline have.
    tied: Vec<Pattern>,
    /// Rows of the vocabulary without its padding.
    words: Option<usize>,
    /// Files before version 0.4 do not record uneven widths.
    version: f64,
    pub unsupported: Vec<String>,
}

impl Rules {
    pub fn read(info: Node) -> Result<Rules, String> {
        let list = |key: &str| match info.get(key) {
            Some(list) => patterns(list),
            None => Ok(Vec::new()),
        };
        let recorded = info.get("sub_param_shard_widths").into_iter().flat_map(Node::entries);
        let widths = |(pattern, widths): (Node, Node)| {
            let widths = widths.items().map(Node::sizes).collect::<Option<Vec<_>>>()?;
            Some((pattern.text()?.to_string(), widths))
        };
        let widths: BTreeMap<String, Vec<Vec<usize>>> = recorded.filter_map(widths).collect();
        let mut inner = Vec::new();
        for entry in info.get("parameter_with_sub_params").into_iter().flat_map(Node::items) {
            let broken = || "an entry of parameter_with_sub_params is broken".to_string();
            let field = |key: &str| entry.get(key).or_else(|| entry.attribute(key));
            let shape = field("shape").and_then(sizes).ok_or_else(broken)?;
            let dim = field("partition_dim").and_then(Node::count);
            let dim = dim.filter(|dim| *dim < shape.len()).ok_or_else(broken)?;
            let patterns = patterns(field("patterns").ok_or_else(broken)?)?;
            let widths = patterns.iter().find_map(|pattern| widths.get(&pattern.text)).cloned();
            if widths.iter().flatten().flatten().any(|width| *width as u64 > ABSURD) {
                return Err(broken());
            }
            let texts = patterns.iter().map(|pattern| pattern.text.clone()).collect();
            inner.push((patterns, Inner { patterns: texts, shape, dim, widths }));
        }
        let unsupported = info.get("autotp_unsupported_parameter_patterns");
        Ok(Rules {
            recorded: true,
            replicated: list("tp_replicated_parameter_patterns")?,
            averaged: list("parameter_to_average_patterns")?,
            rows: list("parameter_with_row_parallelism_patterns")?,
            vocabulary: list("vocabulary_parameter_patterns")?,
            halves: list("parameter_with_2_sub_params_cat_dim_0")?,
            inner,
            maps: maps(info)?,
            tied: list("pipeline_replicated_parameter_patterns")?,
            words: info.get("original_vocab_size").and_then(Node::count),
            version: info.get("universal_checkpoint_version").and_then(Node::float).unwrap_or(0.0),
            unsupported: unsupported
                .into_iter()
                .flat_map(Node::entries)
                .filter_map(|(name, _)| Some(name.text()?.to_string()))
                .collect(),
        })
    }

    /// Whether several stages of a pipeline have the parameter. The first stage's is the one to
    /// use.
    pub fn tied(&self, name: &str) -> Result<bool, String> {
        Ok(matching(&self.tied, name)?.is_some())
    }

    pub fn rule(&self, name: &str) -> Result<Rule, String> {
        let replicated = matching(&self.replicated, name)?.is_some();
        if let Some(map) = self.map(name)? {
            // These describe the same, for older converters.
            for patterns in [&self.averaged, &self.halves, &self.rows] {
                matching(patterns, name)?;
            }
            self.inner(name)?;
            return Ok(Rule::Map(map.clone()));
        }
        Ok(if replicated {
            Rule::Replicated
        } else if matching(&self.averaged, name)?.is_some() {
            Rule::Average
        } else if matching(&self.halves, name)?.is_some() {
            Rule::Halves
        } else if let Some(inner) = self.inner(name)? {
            if self.version >= 0.4 && inner.widths.is_none() {
                return Err("it consists of several parameters, and their widths are not recorded"
                    .to_string());
            }
            Rule::Inner(inner.clone())
        } else {
            Rule::Joined(matching(&self.rows, name)?.is_some().into())
        })
    }

    fn inner(&self, name: &str) -> Result<Option<&Inner>, String> {
        for (patterns, inner) in &self.inner {
            if matching(patterns, name)?.is_some() {
                return Ok(Some(inner));
            }
        }
        Ok(None)
    }

    fn map(&self, name: &str) -> Result<Option<&Map>, String> {
        let mut found = None;
        for (pattern, map) in &self.maps {
            if pattern.matches(name)? && found.replace(map).is_some() {
                return Err(format!("two maps match it, the second by {:?}", pattern.text));
            }
        }
        Ok(found)
    }

    /// The rows of a parameter that has one row for each token of the vocabulary, without those
    /// that pad it.
    pub fn rows_of_vocabulary(&self, name: &str) -> Result<Option<usize>, String> {
        match (matching(&self.vocabulary, name)?, self.words) {
            (Some(_), None) => {
                Err("it has padded rows, and original_vocab_size is not recorded".to_string())
            }
            (found, words) => Ok(words.filter(|_| found.is_some())),
        }
    }

    /// Patterns that no name has matched. One may be misspelt.
    pub fn unused(&self) -> Vec<&str> {
        let lists = [&self.replicated, &self.averaged, &self.rows, &self.vocabulary, &self.halves];
        let all = lists
            .into_iter()
            .flatten()
            .chain(self.inner.iter().flat_map(|(patterns, _)| patterns));
        all.filter(|pattern| !pattern.used.load(Relaxed))
            .map(|pattern| pattern.text.as_str())
            .collect()
    }
}

impl Pattern {
    /// Reads a pattern. `large` counts those of the same list that are large.
    fn read(node: Node, large: &mut usize) -> Result<Pattern, String> {
        let text = node
            .text()
            .ok_or("a pattern of universal_checkpoint_info is no text")?
            .to_string();
        if text.len() > 1000 {
            return Err(format!("a pattern of universal_checkpoint_info has {} bytes", text.len()));
        }
        // Python's `re.match` begins where the name begins, and ends anywhere.
        let build =
            |size| RegexBuilder::new(&format!("^(?:{text})")).delegate_size_limit(size).build();
        let regex = build(32 << 10).or_else(|error| {
            *large += 1;
            if *large > LARGE { Err(error) } else { build(1 << 20) }
        });
        let regex = regex.map_err(|_| format!("the pattern {text:?} is broken, or too large"))?;
        Ok(Pattern { text, regex, used: AtomicBool::new(false) })
    }

    fn matches(&self, name: &str) -> Result<bool, String> {
        // A pattern may take very long on some names. Its library gives up in time.
        self.regex
            .is_match(name)
            .map_err(|_| format!("the pattern {:?} takes too long", self.text))
    }
}

/// The sizes of a parameter that consists of several, unless one is absurd.
fn sizes(shape: Node) -> Option<Vec<Size>> {
    let sizes = shape.items().map(|size| match size.int() {
        Some(size) => Some(Size::One(size)).filter(|_| size <= ABSURD as i64),
        None => {
            let sizes = size.sizes()?;
            sizes.iter().all(|size| *size as u64 <= ABSURD).then_some(Size::Several(sizes))
        }
    });
    sizes.collect()
}

/// DeepSpeed's maps, by pattern.
fn maps(info: Node) -> Result<Vec<(Pattern, Map)>, String> {
    let Some(maps) = info.get("affine_map") else {
        return Ok(Vec::new());
    };
    if maps.get("version").and_then(Node::int).is_some_and(|version| version > 1) {
        return Err("its affine_map is of a version that is not known".to_string());
    }
    let mut large = 0;
    let map = |(pattern, map): (Node, Node)| {
        let pattern = Pattern::read(pattern, &mut large)?;
        let map = Map::read(map)
            .map_err(|how| format!("the map of {:?} cannot be used: {how}", pattern.text))?;
        Ok((pattern, map))
    };
    let params = maps.get("params");
    params.into_iter().flat_map(Node::entries).take(PATTERNS).map(map).collect()
}

fn patterns(list: Node) -> Result<Vec<Pattern>, String> {
    if list.items().len() > PATTERNS {
        return Err(format!(
            "universal_checkpoint_info has {} patterns in one list",
            list.items().len()
        ));
    }
    if !matches!(list.value(), Value::List(_) | Value::Tuple(_)) {
        return Err("patterns of universal_checkpoint_info are no list".to_string());
    }
    let mut large = 0;
    list.items().map(|node| Pattern::read(node, &mut large)).collect()
}

/// The one pattern that matches a name.
fn matching<'a>(patterns: &'a [Pattern], name: &str) -> Result<Option<&'a Pattern>, String> {
    let mut found: Option<&Pattern> = None;
    for pattern in patterns {
        if pattern.matches(name)? {
            if let Some(found) = found {
                return Err(format!(
                    "two patterns match it, {:?} and {:?}",
                    found.text, pattern.text
                ));
            }
            pattern.used.store(true, Relaxed);
            found = Some(pattern);
        }
    }
    Ok(found)
}

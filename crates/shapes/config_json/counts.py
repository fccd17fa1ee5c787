#!/usr/bin/env python3
"""Counts the parameters of published models with transformers' own classes,
        and writes counted.json.

Each model is built on PyTorch's meta device, which allocates nothing. Its row has the keys of its
config.json that matter to the count, written down by hand; keys that a nested table leaves out are
left out here as well. Of models that see, the language model alone is built. `windowed`: the layers
whose mask is a sliding window, by transformers' own list of layers.

    pip install torch transformers
    python3 crates/shapes/config_json/counts.py
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

HERE = pathlib.Path(__file__).resolve().parent

LLAMA = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
    "vocab_size"
)
GPT2 = "n_embd n_layer n_head vocab_size n_positions"
NEOX = "hidden_size intermediate_size num_hidden_layers num_attention_heads vocab_size"
FALCON = "hidden_size num_hidden_layers num_attention_heads vocab_size"
OPT = "hidden_size ffn_dim num_hidden_layers num_attention_heads vocab_size word_embed_proj_dim"
TIED = {"tie_word_embeddings": True}
UNTIED = {"tie_word_embeddings": False}


def row(names, numbers, **more):
    return dict(zip(names.split(), numbers, strict=True)) | more


# Name, model_type, keys.
MODELS = [
    ("Llama 3.2 1B", "llama", row(LLAMA, [2048, 8192, 16, 32, 8, 128_256], head_dim=64, **TIED)),
    ("Llama 3.1 8B", "llama", row(LLAMA, [4096, 14_336, 32, 32, 8, 128_256], **UNTIED)),
    ("Mistral 7B v0.1", "mistral", row(LLAMA, [4096, 14_336, 32, 32, 8, 32_000],
        sliding_window=4096, **UNTIED)),
    ("Mistral NeMo 12B", "mistral", row(LLAMA, [5120, 14_336, 40, 32, 8, 131_072], head_dim=128,
        sliding_window=None, **UNTIED)),
    ("Ministral 8B", "mistral", row(LLAMA, [4096, 12_288, 36, 32, 8, 131_072], head_dim=128,
        sliding_window=32_768, **UNTIED)),
    ("Ministral 8B, converted", "ministral", row(LLAMA, [4096, 12_288, 36, 32, 8, 131_072],
        head_dim=128, sliding_window=32_768,
        layer_types=(["full_attention"] + 3 * ["sliding_attention"]) * 9, **UNTIED)),
    ("Mistral Small 3.1 24B", "mistral3", {"text_config": row(LLAMA, [5120, 32_768, 40, 32, 8,
        131_072], model_type="mistral",
        head_dim=128, sliding_window=None)}),
    ("Ministral 3 3B", "mistral3", {"text_config": row(LLAMA, [3072, 9216, 26, 32, 8, 131_072],
        model_type="ministral3",
        head_dim=128, sliding_window=None, **TIED)}),
    ("Pixtral 12B", "llava", {"text_config": {"model_type": "mistral", "hidden_size": 5120,
        "head_dim": 128, "intermediate_size": 14_336,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "vocab_size": 131_072,
        "sliding_window": None}}),
    ("LLaVA 1.5 7B", "llava", {"text_config": {"model_type": "llama", "vocab_size": 32_064},
        "tie_word_embeddings": False}),
    ("Qwen 2.5 14B", "qwen2", row(LLAMA, [5120, 13_824, 48, 40, 8, 152_064], max_window_layers=48,
        sliding_window=131_072,
        use_sliding_window=False, **UNTIED)),
    ("Qwen 2.5 0.5B", "qwen2", row(LLAMA, [896, 4864, 24, 14, 2, 151_936], **TIED)),
    ("Qwen2-VL 2B", "qwen2_vl", row(LLAMA, [1536, 8960, 28, 12, 2, 151_936], **TIED)),
    ("Qwen 3 0.6B", "qwen3", row(LLAMA, [1024, 3072, 28, 16, 8, 151_936], head_dim=128, **TIED)),
    ("Qwen 3 32B", "qwen3", row(LLAMA, [5120, 25_600, 64, 64, 8, 151_936], head_dim=128,
        attention_bias=False, **UNTIED)),
    ("Qwen3-VL 4B", "qwen3_vl", {"text_config": row(LLAMA, [2560, 9728, 36, 32, 8, 151_936],
        model_type="qwen3_vl_text", head_dim=128, **TIED), **TIED}),
    ("GPT-2", "gpt2", row(GPT2, [768, 12, 12, 50_257, 1024])),
    ("GPT-2 XL", "gpt2", row(GPT2, [1600, 48, 25, 50_257, 1024])),
    ("Pythia 6.9B", "gpt_neox", row(NEOX, [4096, 16_384, 32, 32, 50_432], **UNTIED)),
    ("GPT-NeoX 20B", "gpt_neox", row(NEOX, [6144, 24_576, 44, 64, 50_432], **UNTIED)),
    ("RedPajama 3B", "gpt_neox", row(NEOX, [2560, 10_240, 32, 32, 50_432],
        use_parallel_residual=False, **UNTIED)),
    ("BLOOM", "bloom", {"hidden_size": 14_336, "n_layer": 70, "n_head": 112,
        "vocab_size": 250_880}),
    ("BLOOM 560M", "bloom", {"n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
        "vocab_size": 250_880, "hidden_size": 1024}),
    ("Falcon 7B", "falcon", row(FALCON, [4544, 32, 71, 65_024], multi_query=True,
        parallel_attn=True, bias=False, new_decoder_architecture=False)),
    ("Falcon 40B", "falcon", row(FALCON, [8192, 60, 128, 65_024], num_kv_heads=8,
        new_decoder_architecture=True, multi_query=True, parallel_attn=True, bias=False)),
    ("Falcon RW 1B", "falcon", row(FALCON, [2048, 24, 32, 50_304], alibi=True, bias=True,
        multi_query=False, parallel_attn=False, new_decoder_architecture=False)),
    ("Falcon 2 11B", "falcon", row(FALCON, [4096, 60, 32, 65_024], num_kv_heads=8,
        ffn_hidden_size=16_384, new_decoder_architecture=True,
        num_ln_in_parallel_attn=1, multi_query=True, parallel_attn=True, bias=False)),
    ("OPT 125M", "opt", row(OPT, [768, 3072, 12, 12, 50_272, 768], max_position_embeddings=2048,
        do_layer_norm_before=True)),
    ("OPT 6.7B", "opt", row(OPT, [4096, 16_384, 32, 32, 50_272, 4096],
        max_position_embeddings=2048, do_layer_norm_before=True)),
    ("Phi-2", "phi", row(LLAMA, [2560, 10_240, 32, 32, 32, 51_200], **UNTIED)),
    ("Phi-3 mini", "phi3", row(LLAMA, [3072, 8192, 32, 32, 32, 32_064], sliding_window=2047,
        **UNTIED)),
    ("Phi-3 medium", "phi3", row(LLAMA, [5120, 17_920, 40, 40, 10, 32_064], sliding_window=2047,
        **UNTIED)),
    ("Phi-4", "phi3", row(LLAMA, [5120, 17_920, 40, 40, 10, 100_352], sliding_window=None,
        **UNTIED)),
    ("Phi-4 mini", "phi3", row(LLAMA, [3072, 8192, 32, 24, 8, 200_064], sliding_window=262_144,
        **TIED)),
    ("Gemma 2B", "gemma", row(LLAMA, [2048, 16_384, 18, 8, 1, 256_000], head_dim=256)),
    ("Gemma 7B", "gemma", row(LLAMA, [3072, 24_576, 28, 16, 16, 256_000], head_dim=256)),
    ("Gemma 2 2B", "gemma2", row(LLAMA, [2304, 9216, 26, 8, 4, 256_000], head_dim=256,
        sliding_window=4096)),
    ("Gemma 2 9B", "gemma2", row(LLAMA, [3584, 14_336, 42, 16, 8, 256_000], head_dim=256,
        sliding_window=4096)),
    ("Gemma 2 27B", "gemma2", row(LLAMA, [4608, 36_864, 46, 32, 16, 256_000], head_dim=128,
        sliding_window=4096)),
    ("Gemma 3 1B", "gemma3_text", row(LLAMA, [1152, 6912, 26, 4, 1, 262_144], head_dim=256,
        sliding_window=512, sliding_window_pattern=6)),
    ("Gemma 3 4B", "gemma3", {"text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
        "intermediate_size": 10_240, "num_hidden_layers": 34,
        "sliding_window": 1024}}),
    ("Gemma 3 27B", "gemma3", {"text_config": {"model_type": "gemma3_text", "hidden_size": 5376,
        "intermediate_size": 21_504, "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
        "sliding_window": 1024}}),
    ("OLMo 7B", "olmo", row(LLAMA, [4096, 11_008, 32, 32, 32, 50_304], **UNTIED)),
    ("OLMo 2 1B", "olmo2", row(LLAMA, [2048, 8192, 16, 16, 16, 100_352], **UNTIED)),
    ("OLMo 2 7B", "olmo2", row(LLAMA, [4096, 11_008, 32, 32, 32, 100_352], **UNTIED)),
    ("OLMo 2 32B", "olmo2", row(LLAMA, [5120, 27_648, 64, 40, 8, 100_352], **UNTIED)),
    ("OLMo 3 7B", "olmo3", row(LLAMA, [4096, 11_008, 32, 32, 32, 100_278], sliding_window=4096,
        **UNTIED)),
    ("OLMo 3 32B", "olmo3", row(LLAMA, [5120, 27_648, 64, 40, 8, 100_278], sliding_window=4096,
        **UNTIED)),
    ("Granite 3.1 2B", "granite", row(LLAMA, [2048, 8192, 40, 32, 8, 49_155], **TIED)),
    ("Granite 3.1 8B", "granite", row(LLAMA, [4096, 12_800, 40, 32, 8, 49_155], **TIED)),
    ("Granite 4.0 Micro", "granitemoehybrid", {"hidden_size": 2560,
        "shared_intermediate_size": 8192, "intermediate_size": 8192,
        "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8,
        "vocab_size": 100_352, "num_local_experts": 0,
        "num_experts_per_tok": 0, "layer_types": ["attention"] * 40, **TIED}),
    ("SmolLM3 3B", "smollm3", row(LLAMA, [2048, 11_008, 36, 16, 4, 128_256],
        use_sliding_window=False, **TIED)),
    ("Command R", "cohere", row(LLAMA, [8192, 22_528, 40, 64, 64, 256_000])),
    ("Command R+", "cohere", row(LLAMA, [12_288, 33_792, 64, 96, 8, 256_000], use_qk_norm=True)),
    ("Aya 23 8B", "cohere", row(LLAMA, [4096, 14_336, 32, 32, 8, 256_000], use_qk_norm=False)),
    ("Command R7B", "cohere2", row(LLAMA, [4096, 14_336, 32, 32, 8, 256_000], head_dim=128,
        sliding_window=4096, sliding_window_pattern=4)),
    ("StarCoder2 3B", "starcoder2", row(LLAMA, [3072, 12_288, 30, 24, 2, 49_152],
        sliding_window=4096)),
    ("StarCoder2 7B", "starcoder2", row(LLAMA, [4608, 18_432, 32, 36, 4, 49_152],
        sliding_window=4096)),
    ("StarCoder2 15B", "starcoder2", row(LLAMA, [6144, 24_576, 40, 48, 4, 49_152],
        sliding_window=4096, use_bias=True, **UNTIED)),
    ("StableLM 3B 4E1T", "stablelm", row(LLAMA, [2560, 6912, 32, 32, 32, 50_304],
        use_qkv_bias=False, **UNTIED)),
    ("StableLM 2 1.6B", "stablelm", row(LLAMA, [2048, 5632, 24, 32, 32, 100_352],
        use_qkv_bias=True, **UNTIED)),
    ("StableLM 2 12B", "stablelm", row(LLAMA, [5120, 13_824, 40, 32, 8, 100_352],
        qk_layernorm=True, use_parallel_residual=True, **UNTIED)),
    ("GLM-4 9B", "glm", row(LLAMA, [4096, 13_696, 40, 32, 2, 151_552], head_dim=128,
        attention_bias=True, **UNTIED)),
    ("GLM-4 9B 0414", "glm4", row(LLAMA, [4096, 13_696, 40, 32, 2, 151_552], head_dim=128,
        attention_bias=True, **UNTIED)),
    ("GLM-4 32B 0414", "glm4", row(LLAMA, [6144, 23_040, 61, 48, 2, 151_552], head_dim=128,
        attention_bias=False, **UNTIED)),
    ("Nemotron Mini 4B", "nemotron", row(LLAMA, [3072, 9216, 32, 24, 8, 256_000], head_dim=128,
        **UNTIED)),
    ("Nemotron 4 340B", "nemotron", row(LLAMA, [18_432, 73_728, 96, 96, 8, 256_000], head_dim=192,
        **UNTIED)),
    ("EXAONE 4.0 1.2B", "exaone4", row(LLAMA, [2048, 4096, 30, 32, 8, 102_400], head_dim=64,
        sliding_window=None,
        layer_types=["full_attention"] * 30, **TIED)),
    ("EXAONE 4.0 32B", "exaone4", row(LLAMA, [5120, 27_392, 64, 40, 8, 102_400], head_dim=128,
        sliding_window=4096, sliding_window_pattern="LLLG",
        layer_types=(3 * ["sliding_attention"] + ["full_attention"]) * 16, **UNTIED)),
    ("GPT-J 6B", "gptj", row(GPT2, [4096, 28, 16, 50_400, 2048], **UNTIED)),
    ("GPT-Neo 1.3B", "gpt_neo", {"hidden_size": 2048, "num_layers": 24, "num_heads": 16,
        "vocab_size": 50_257, "max_position_embeddings": 2048,
        "attention_types": [[["global", "local"], 12]], "window_size": 256}),
    ("CodeGen 350M", "codegen", row(GPT2, [1024, 20, 16, 51_200, 2048], **UNTIED)),
    ("StarCoder", "gpt_bigcode", row(GPT2, [6144, 40, 48, 49_152, 8192], n_inner=24_576,
        multi_query=True)),
    ("MPT 7B", "mpt", {"d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50_432,
        "max_seq_len": 2048, "expansion_ratio": 4}),
    ("Seed-OSS 36B", "seed_oss", row(LLAMA, [5120, 27_648, 64, 80, 8, 155_136], head_dim=128,
        attention_bias=True, attention_out_bias=False,
        **UNTIED)),
    ("AFM 4.5B", "arcee", row(LLAMA, [2560, 18_432, 36, 20, 4, 128_004], head_dim=128, **UNTIED)),
    ("Helium 1 2B", "helium", row(LLAMA, [2048, 8192, 24, 16, 8, 64_000], head_dim=128, **UNTIED)),
    ("ERNIE 4.5 0.3B", "ernie4_5", row(LLAMA, [1024, 3072, 18, 16, 2, 103_424], head_dim=128,
        use_bias=False, **TIED)),
    ("EXAONE 3.5 2.4B", "exaone", {"hidden_size": 2560, "intermediate_size": 7168,
        "num_layers": 30, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 102_400, "head_dim": 80, **TIED}),
    ("EXAONE 3.5 7.8B", "exaone", {"hidden_size": 4096, "intermediate_size": 14_336,
        "num_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 102_400, "head_dim": 128, **UNTIED}),
    ("Hunyuan 7B", "hunyuan_v1_dense", row(LLAMA, [4096, 14_336, 32, 32, 8, 128_256],
        head_dim=128, use_qk_norm=True, **TIED)),
]

PATTERNS = {"sliding_attention", "chunked_attention"}


def counted(kind, keys):
    config = AutoConfig.for_model(kind, **keys)
    text = config.get_text_config()
    with torch.device("meta"):
        if type(text) in AutoModelForCausalLM._model_mapping:
            model = AutoModelForCausalLM.from_config(text)
        else:
            model = AutoModelForImageTextToText.from_config(config)
    model.tie_weights()
    named = model.named_parameters()
    parameters = sum(parameter.numel() for name, parameter in named if "visual" not in name)
    kinds = getattr(text, "layer_types", None) or []
    windowed = sum(kind in PATTERNS for kind in kinds)
    window = getattr(text, "sliding_window", None)
    if not kinds and window:
        windowed = text.num_hidden_layers
    if kind == "gpt_neo":
        windowed = text.attention_layers.count("local")
    return parameters, windowed


def main():
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    rows = []
    for name, kind, keys in MODELS:
        parameters, windowed = counted(kind, json.loads(json.dumps(keys)))
        rows.append({"name": name, "parameters": parameters, "windowed": windowed,
        "config": {"model_type": kind} | keys})
        print(f"{name:24} {kind:18} {parameters:>17,} {windowed:3}", file=sys.stderr)
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    text = f'{{\n  "versions": {json.dumps(versions)},\n  "models": [\n{lines}\n  ]\n}}\n'
    (HERE / "counted.json").write_text(text)


if __name__ == "__main__":
    main()

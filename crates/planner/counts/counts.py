#!/usr/bin/env python3
"""Counts parameters with transformers' own classes, and writes counted.json.

Each model is built on PyTorch's meta device, which allocates nothing. Active parameters are all but
those of experts that a token is not sent to. With files as arguments it prints the counts of these
config.json files, and writes nothing.

    pip install torch transformers
    python3 crates/planner/counts/counts.py [config.json...]
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent


def base(**more):
    keys = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
    return keys | {"intermediate_size": 96, "pad_token_id": None} | more


def other(**more):
    keys = {"vocab_size": 1500, "hidden_size": 96, "num_hidden_layers": 6, "num_attention_heads": 12, "num_key_value_heads": 4}
    return keys | {"intermediate_size": 136, "pad_token_id": None} | more


def two(first, second):
    return [base(**first), other(**(first | second))]


def scaled(**keys):
    """Two sizes: the second with its numbers half as large again, up to even ones."""
    larger = {key: 2 * ((value * 3 // 2 + 1) // 2) if type(value) is int and value > 3 else value for key, value in keys.items()}
    return [base(**keys), other(**larger)]


ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
MLA = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "num_key_value_heads": 8}
V3 = MLA | ROUTED | {"n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1}
INDEX = {"index_n_heads": 4, "index_head_dim": 16}
DELTA = {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 12, "linear_value_head_dim": 10, "linear_conv_kernel_dim": 4}
MAMBA2 = {"mamba_n_heads": 16, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}
KINDS = ["linear_attention", "full_attention"]


def cases():
    yield "mixtral", scaled(num_local_experts=4, num_experts_per_tok=2)
    yield "mixtral", [base(head_dim=12, tie_word_embeddings=True)]
    yield "olmoe", scaled(num_experts=8, num_experts_per_tok=2) + [base(attention_bias=True)]
    yield "flex_olmo", scaled(num_experts=8, num_experts_per_tok=2)
    yield "granitemoe", scaled(num_local_experts=8, num_experts_per_tok=2, attention_bias=True)
    yield "granitemoeshared", scaled(num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=40)
    yield "granitemoe_swa", scaled(num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=40)
    yield "granitemoehybrid", [base(layer_types=2 * KINDS, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=40, **MAMBA2),
        other(layer_types=["mamba", "attention"] * 3, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48, **(MAMBA2 | {"mamba_n_heads": 24})),
        base(layer_types=2 * KINDS, num_local_experts=4, num_experts_per_tok=2, mamba_proj_bias=True, mamba_conv_bias=False, **MAMBA2)]
    yield "minimax_m2", scaled(head_dim=16, num_local_experts=8, num_experts_per_tok=2)
    yield "phimoe", scaled(num_local_experts=8, num_experts_per_tok=2, attention_bias=True) + [base(lm_head_bias=True)]
    yield "hunyuan_v1_moe", scaled(head_dim=16, num_experts=4, moe_topk=2)
    yield "gpt_oss", scaled(head_dim=16, num_local_experts=8, num_experts_per_tok=2)
    yield "gpt_oss", [base(head_dim=16, num_local_experts=8, attention_bias=False, tie_word_embeddings=True)]
    yield "qwen3_moe", scaled(head_dim=16, num_experts=8, **ROUTED) + [base(head_dim=16, num_experts=8, mlp_only_layers=[1], decoder_sparse_step=2, attention_bias=True, **ROUTED)]
    yield "qwen2_moe", scaled(num_experts=8, shared_expert_intermediate_size=40, **ROUTED) + [base(qkv_bias=False, decoder_sparse_step=2, **ROUTED)]
    yield "mellum", scaled(head_dim=16, num_local_experts=8, **ROUTED) + [base(head_dim=16, num_local_experts=8, mlp_layer_types=["dense"] + 3 * ["sparse"], **ROUTED)]
    yield "flint", scaled(head_dim=16, num_experts=8, shared_expert_intermediate_size=40, **ROUTED)
    yield "kolibri1", scaled(head_dim=16, num_local_experts=8, shared_expert_intermediate_size=40, **ROUTED)
    yield "qwen3_next", scaled(head_dim=16, num_experts=8, shared_expert_intermediate_size=40, **ROUTED, **DELTA) + [base(head_dim=16, num_experts=8, layer_types=KINDS * 2, decoder_sparse_step=2, full_attention_interval=2, **ROUTED, **DELTA)]
    yield "qwen3_5_moe_text", scaled(head_dim=16, num_experts=8, shared_expert_intermediate_size=40, **ROUTED, **DELTA)
    yield "qwen3_5_text", scaled(head_dim=16, **DELTA) + [base(head_dim=16, tie_word_embeddings=True, attention_bias=True, full_attention_interval=2, **DELTA)]
    yield "lara_mini", [base(head_dim=16, num_experts=8, shared_expert_intermediate_size=40, layer_types=KINDS * 2, **ROUTED, **DELTA), other(head_dim=16, num_experts=6, layer_types=KINDS * 3, **ROUTED, **DELTA)]
    yield "olmo_hybrid", [base(layer_types=KINDS * 2, **DELTA), other(layer_types=KINDS * 3, **DELTA), base(**DELTA)]
    for kind in ["deepseek_v3", "deepseek_v2"]:
        yield kind, scaled(**V3) + [base(**(V3 | {"q_lora_rank": None, "attention_bias": True, "n_shared_experts": 2}))]
    yield "deepseek_v3", [base(num_nextn_predict_layers=1, **V3)]
    yield "axk1", scaled(**V3)
    yield "glm4_moe_lite", scaled(**V3)
    yield "deepseek_v32", scaled(**V3, **INDEX)
    yield "glm_moe_dsa", scaled(**V3, **INDEX) + [base(index_topk_freq=2, **V3, **INDEX), base(index_topk_pattern="FSSF", **V3, **INDEX)]
    yield "hy_v4", scaled(**{key: value for key, value in V3.items() if key != "first_k_dense_replace"}, hc_mult=3, **INDEX)
    K = MLA | ROUTED | {"num_shared_experts": 1, "num_experts": 8, "q_lora_rank": None}
    yield "kimi_linear", [base(first_k_dense_replace=1, linear_attn_config={"full_attn_layers": [2, 4], "kda_layers": [1, 3], "head_dim": 12, "num_heads": 6, "short_conv_kernel_size": 4}, **K),
        other(linear_head_dim=10, linear_num_heads=4, linear_conv_kernel_dim=3, **K)]
    yield "bailing_hybrid", scaled(head_dim=16, layer_group_size=2, short_conv_kernel_size=3, first_k_dense_replace=1, **K)
    yield "longcat_flash", [{"vocab_size": 1000, "hidden_size": 64, "num_layers": 2, "num_attention_heads": 8, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 24, "n_routed_experts": 8, "zero_expert_num": zero, "moe_topk": 3, **{k: v for k, v in MLA.items() if k[:4] != "num_"}} for zero in (4, 2)]
    V4 = {"head_dim": 32, "q_lora_rank": 24, "o_groups": 2, "o_lora_rank": 12, "n_routed_experts": 8, "n_shared_experts": 1, "hc_mult": 2, "num_key_value_heads": 1, **ROUTED, **INDEX}
    yield "deepseek_v4", [base(compress_ratios=[0, 128, 4, 128, 0], num_hash_layers=1, **V4), other(layer_types=["heavily_compressed_attention", "compressed_sparse_attention"] * 3, **(V4 | {"hc_mult": 4}))]
    yield "glm4_moe", scaled(head_dim=16, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, **ROUTED) + [base(n_routed_experts=8, n_shared_experts=2, **ROUTED)]
    yield "solar_open", scaled(head_dim=16, n_routed_experts=8, n_shared_experts=1, **ROUTED)
    yield "dots1", scaled(head_dim=16, n_routed_experts=8, n_shared_experts=2, first_k_dense_replace=1, **ROUTED)
    yield "exaone_moe", scaled(num_experts=8, num_shared_experts=1, first_k_dense_replace=1, **ROUTED) + [base(num_experts=8, mlp_layer_types=["dense", "sparse"] * 2, **ROUTED)]
    yield "afmoe", scaled(head_dim=16, num_experts=8, num_shared_experts=2, num_dense_layers=1, **ROUTED)
    yield "hy_v3", scaled(head_dim=16, num_experts=8, num_shared_experts=1, **ROUTED)
    yield "laguna", scaled(head_dim=16, num_experts=8, shared_expert_intermediate_size=40, **ROUTED) + [base(head_dim=16, num_experts=8, gating=False, num_attention_heads_per_layer=[8, 4, 8, 4], **ROUTED), base(head_dim=16, num_experts=8, gating="per-element", **ROUTED)]
    E = {"moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 24}
    yield "ernie4_5_moe", scaled(moe_layer_start_index=1, moe_layer_end_index=5, moe_layer_interval=1, **E) + [base(use_bias=True, moe_layer_interval=2, **E)]
    yield "mimo_v2_flash", scaled(head_dim=16, v_head_dim=12, n_routed_experts=8, **ROUTED)
    yield "cohere2_moe", scaled(head_dim=16, num_experts=8, num_experts_per_tok=2, num_shared_experts=1) + [base(num_experts=8, first_k_dense_replace=1, prefix_dense_intermediate_size=40)]
    yield "llama4_text", scaled(head_dim=16, num_local_experts=8, intermediate_size_mlp=160, interleave_moe_layer_step=2) + [base(moe_layers=[0, 2], attention_bias=True)]
    yield "minimax_m3_vl_text", scaled(head_dim=16, num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=40, dense_intermediate_size=72) + [base(moe_layer_freq=[0, 1, 1, 1])]
    yield "minimax", scaled(head_dim=16, num_local_experts=8, num_experts_per_tok=2) + [base(layer_types=KINDS * 2)]
    M = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 3}
    yield "mamba", [M | {"state_size": 8}, M | {"state_size": 16, "expand": 3, "time_step_rank": 6, "use_bias": True, "tie_word_embeddings": False}]
    yield "falcon_mamba", [M | {"state_size": 8, "intermediate_size": 96}, M | {"hidden_size": 96}]
    yield "mamba2", [M | {"state_size": 8, "num_heads": 16, "head_dim": 8, "n_groups": 2}, M | {"num_heads": 8, "head_dim": 16, "n_groups": 1, "use_bias": True, "use_conv_bias": False}]
    yield "jamba", [base(num_experts=4, num_experts_per_tok=2, attn_layer_period=4, attn_layer_offset=2, mamba_d_state=8), other(num_experts=8, expert_layer_period=3, expert_layer_offset=2, attn_layer_period=2, attn_layer_offset=1, mamba_dt_rank=8, mamba_proj_bias=True)]
    yield "bamba", [base(attn_layer_indices=[1], **MAMBA2), other(attn_layer_indices=[0, 4], **(MAMBA2 | {"mamba_n_heads": 24}))]
    yield "falcon_h1", [base(mamba_d_ssm=128, **MAMBA2), other(mamba_d_ssm=96, mamba_rms_norm=True, **(MAMBA2 | {"mamba_n_heads": 12}))]
    N = {"vocab_size": 1000, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "n_routed_experts": 8, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40, "num_experts_per_tok": 2}
    yield "nemotron_h", [N | {"hybrid_override_pattern": "MEM*E-"}, N | {"layers_block_type": ["mamba", "moe", "attention", "mlp"], "moe_latent_size": 16}, N | {"hybrid_override_pattern": "M-M*-", "attention_bias": True, "mlp_bias": True, "use_bias": True}, N | {"hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "mlp_bias": True, "moe_latent_size": 16, "num_nextn_predict_layers": 1}]
    yield "lfm2", [base(full_attn_idxs=[1, 3]), other(layer_types=["conv", "full_attention"] * 3, block_auto_adjust_ff_dim=False, conv_bias=True, conv_L_cache=4), base(block_ffn_dim_multiplier=1.5, block_multiple_of=64)]
    yield "lfm2_moe", [base(num_experts=8, num_dense_layers=1, layer_types=["conv", "full_attention"] * 2, **ROUTED), other(num_experts=6, num_dense_layers=2, layer_types=["conv", "full_attention"] * 3, **ROUTED)]
    yield "lfm3", [base(head_dim=16, layer_types=["conv", "full_attention"] * 2), other(head_dim=16, use_sandwich_norm=False, use_attention_gate=False, layer_types=["conv", "sliding_attention"] * 3)]
    SF = ["sliding_attention", "full_attention"]
    G = {"head_dim": 16, "global_head_dim": 32, "layer_types": 2 * SF, "vocab_size_per_layer_input": 1000}
    yield "gemma4_text", [base(hidden_size_per_layer_input=8, num_kv_shared_layers=2, use_double_wide_mlp=True, **G), base(hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, **G),
        other(hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=24, attention_k_eq_v=True, num_global_key_value_heads=2, **(G | {"layer_types": 3 * SF})),
        other(hidden_size_per_layer_input=8, head_dim=16, global_head_dim=24, num_global_key_value_heads=2), base(hidden_size_per_layer_input=0, **(G | {"layer_types": 4 * ["sliding_attention"]}), attention_bias=True)]


def counted(kind, keys):
    config = AutoConfig.for_model(kind, **keys).get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    everything, idle = 0, 0
    for name, parameter in model.named_parameters():
        everything += parameter.numel()
        if ".experts." in name and ".shared" not in name:
            chosen = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k_experts", None) or config.moe_topk
            idle += parameter.numel() // parameter.shape[0] * (parameter.shape[0] - chosen)
    return everything, everything - idle


def main():
    for path in sys.argv[1:]:
        keys = json.loads(pathlib.Path(path).read_text())
        print(path, *(f"{count:,}" for count in counted(keys.pop("model_type"), keys)))
    if sys.argv[1:]:
        return
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    rows = []
    for kind, sizes in cases():
        for keys in sizes:
            parameters, active = counted(kind, json.loads(json.dumps(keys)))
            rows.append({"parameters": parameters, "active": active, "config": {"model_type": kind} | keys})
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    text = f'{{\n  "versions": {json.dumps(versions)},\n  "models": [\n{lines}\n  ]\n}}\n'
    (HERE / "counted.json").write_text(text)


if __name__ == "__main__":
    main()

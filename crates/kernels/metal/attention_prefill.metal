// Owns the tiles of prefill attention that every GPU runs: 32 queries, at most 16 KB of threadgroup memory.
#include <metal_stdlib>
using namespace metal;
#include "common/attention_prefill.h"

template [[host_name("attention_prefill_f16_d32")]] kernel decltype(attention_prefill<half, 32, 1, 32, 1>) attention_prefill<half, 32, 1, 32, 1>;
template [[host_name("attention_prefill_f16_d64")]] kernel decltype(attention_prefill<half, 64, 1, 32, 1>) attention_prefill<half, 64, 1, 32, 1>;
template [[host_name("attention_prefill_f16_d128")]] kernel decltype(attention_prefill<half, 128, 1, 16, 1>) attention_prefill<half, 128, 1, 16, 1>;
template [[host_name("attention_prefill_bf16_d32")]] kernel decltype(attention_prefill<bfloat, 32, 1, 32, 1>) attention_prefill<bfloat, 32, 1, 32, 1>;
template [[host_name("attention_prefill_bf16_d64")]] kernel decltype(attention_prefill<bfloat, 64, 1, 32, 1>) attention_prefill<bfloat, 64, 1, 32, 1>;
template [[host_name("attention_prefill_bf16_d128")]] kernel decltype(attention_prefill<bfloat, 128, 1, 16, 1>) attention_prefill<bfloat, 128, 1, 16, 1>;

// Owns the tiles of prefill attention by asynchronous copies: 64 queries, NVIDIA only.
#include <metal_stdlib>
using namespace metal;
#include "common/attention_prefill.h"

template [[host_name("attention_prefill_f16_d32_q64")]] kernel decltype(attention_prefill<half, 32, 2, 32, 2>) attention_prefill<half, 32, 2, 32, 2>;
template [[host_name("attention_prefill_f16_d64_q64")]] kernel decltype(attention_prefill<half, 64, 2, 32, 2>) attention_prefill<half, 64, 2, 32, 2>;
template [[host_name("attention_prefill_f16_d128_q64")]] kernel decltype(attention_prefill<half, 128, 2, 32, 2>) attention_prefill<half, 128, 2, 32, 2>;
template [[host_name("attention_prefill_bf16_d32_q64")]] kernel decltype(attention_prefill<bfloat, 32, 2, 32, 2>) attention_prefill<bfloat, 32, 2, 32, 2>;
template [[host_name("attention_prefill_bf16_d64_q64")]] kernel decltype(attention_prefill<bfloat, 64, 2, 32, 2>) attention_prefill<bfloat, 64, 2, 32, 2>;
template [[host_name("attention_prefill_bf16_d128_q64")]] kernel decltype(attention_prefill<bfloat, 128, 2, 32, 2>) attention_prefill<bfloat, 128, 2, 32, 2>;

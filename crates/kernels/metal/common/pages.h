// Owns the walk over KV pages. A page holds [layer][K|V][kv_head][slot][head_dim]; offsets are elements, in 64 bits.

// Where a key lies: `layer_offset` is from a page's start to this layer's keys, `slot` the token's place in the page.
inline ulong key_offset(ulong page_stride, ulong layer_offset, uint tokens_per_page, uint head_dim,
                        uint page, uint head, uint slot) {
  return ulong(page) * page_stride + layer_offset + (ulong(head) * tokens_per_page + slot) * head_dim;
}

// From a key to the value of the same token.
inline ulong key_to_value(uint kv_heads, uint tokens_per_page, uint head_dim) {
  return ulong(kv_heads) * tokens_per_page * head_dim;
}

#pragma once
// Keys of multi-latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1.3): each head's own part next to a rotated part
// that all heads share; and their backward.

#include "model/device/tensor.hpp"

namespace mgplan::model {

struct LatentKeys {
    Tensor k;  ///< (rows, heads, own + shared)
    Tensor v;  ///< (rows, heads, v_dim)
};

/// projected (rows, heads, own + v_dim) holds each head's own key part and its value; shared (rows, width) is the part of
/// all heads, undefined where there is none.
[[nodiscard]] LatentKeys join_latent_keys(const Tensor& projected, const Tensor& shared, std::int64_t own);

struct LatentKeyGradients {
    Tensor projected;  ///< (rows, heads, own + v_dim)
    Tensor shared;     ///< (rows, width): the sum over these heads, made in fp32 (fp64 for fp64); undefined where width is 0
};

/// dk (rows, heads, own + width), dv (rows, heads, v_dim).
[[nodiscard]] LatentKeyGradients split_latent_keys(const Tensor& dk, const Tensor& dv, std::int64_t own);

}  // namespace mgplan::model

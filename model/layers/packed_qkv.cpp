#include "model/layers/packed_qkv.hpp"

#include <algorithm>

#include "model/layers/rotary_scaling.hpp"
#include "model/layers/whole_width_norm.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {
namespace {

/// Width of the rotated part of each head; an even number.
std::int64_t rotated_width(const Attention& mixer) {
    return mixer.rotary ? static_cast<std::int64_t>(static_cast<double>(mixer.head_dim) * mixer.rotary->fraction) / 2 * 2 : 0;
}

/// Returns x as rows that one norm is over: a head each, or with full width all heads of a row.
Tensor norm_rows(const Attention& mixer, const Tensor& x) {
    const std::int64_t rows = x.shape()[0], heads = x.shape()[1], width = x.shape()[2];
    return mixer.qk_norm == QkNorm::full_width ? x.view({rows, heads * width}) : x.view({rows * heads, width});
}

/// Norms with weights of their own for each of the rank's heads. Keeps their input alone: the backward computes statistics again.
class HeadNorms {
public:
    HeadNorms(const RankContext& context, std::int64_t width, Normalization kind, const Weight& weight, const Weight& bias)
        : context_(context), width_(width), kind_(kind), weight_(weight), bias_(bias) {}

    [[nodiscard]] Tensor forward(const Tensor& heads) const {
        const Tensor x = swap_leading(heads),
                     y = context_.device->empty(x.shape(), x.dtype(), MemoryCategory::activations, "norms of heads");
        for (std::int64_t head = 0; head < x.shape()[0]; ++head) {
            NormStatistics statistics;
            copy(of(x, head, statistics), one(y, head));
        }
        return swap_leading(y);
    }

    [[nodiscard]] Tensor backward(const Tensor& d_heads, const Tensor& heads) const {
        const Tensor x = swap_leading(heads), dy = swap_leading(d_heads);
        const Tensor dx = context_.device->empty(x.shape(), x.dtype(), MemoryCategory::activations, "gradient of heads");
        for (std::int64_t head = 0; head < x.shape()[0]; ++head) {
            NormStatistics statistics;
            (void)of(x, head, statistics);
            copy(norm_backward(one(dy, head), one(x, head), part(weight_.value, head), statistics, kind_, part(weight_.gradient, head),
                               bias_.defined() ? part(bias_.gradient, head) : Tensor()),
                 one(dx, head));
        }
        return swap_leading(dx);
    }

private:
    [[nodiscard]] Tensor of(const Tensor& x, std::int64_t head, NormStatistics& statistics) const {
        return norm(one(x, head), part(weight_.value, head), bias_.defined() ? part(bias_.value, head) : Tensor(), kind_,
                    context_.norm_epsilon, statistics);
    }
    /// (rows, head_dim) of one head.
    [[nodiscard]] static Tensor one(const Tensor& by_head, std::int64_t head) {
        return by_head.slice(head, head + 1).view({by_head.shape()[1], by_head.shape()[2]});
    }
    [[nodiscard]] Tensor part(const Tensor& weights, std::int64_t head) const {
        return weights.defined() ? weights.slice(head * width_, (head + 1) * width_) : Tensor();
    }

    const RankContext& context_;
    std::int64_t width_;  ///< of a head
    Normalization kind_;
    const Weight &weight_, &bias_;
};

/// The tp ranks that hold one kv head's group.
struct SharedGroup {
    std::int64_t ranks;  ///< that share it
    std::int64_t first;  ///< of these, in tp
    std::int64_t place;  ///< of this rank among them

    SharedGroup(const Attention& mixer, const Communicator& tp)
        : ranks(tp.size() / mixer.kv_heads), first(tp.rank() / ranks * ranks), place(tp.rank() % ranks) {}
};

bool shares_groups(const Attention& mixer, const RankContext& context) {
    return context.tp->size() > mixer.kv_heads;
}

/// Returns the whole group of the rank's kv head from its part of the packed projection. Every rank gathers all groups, as in
/// Megatron-core, though it needs one.
Tensor gather_group(const RankContext& context, const SharedGroup& group, const Tensor& part) {
    const std::int64_t rows = part.shape()[0], width = part.shape()[1];
    const Tensor by_rank =
        context.device->empty({context.tp->size(), rows, width}, part.dtype(), MemoryCategory::communication, "gathered projections");
    context.tp->all_gather(part, by_rank);
    return swap_leading(by_rank.slice(group.first, group.first + group.ranks)).view({rows, group.ranks * width});
}

/// Does the backward of gather_group(): sums the ranks' gradients of the group and returns the rank's part.
Tensor scatter_group(const RankContext& context, const SharedGroup& group, const Tensor& gradient) {
    const std::int64_t rows = gradient.shape()[0], width = gradient.shape()[1] / group.ranks;
    const Tensor by_rank =
        context.device->zeros({context.tp->size(), rows, width}, gradient.dtype(), MemoryCategory::communication, "projection gradients");
    copy(swap_leading(gradient.view({rows, group.ranks, width})), by_rank.slice(group.first, group.first + group.ranks));
    Tensor part = context.device->empty({rows, width}, gradient.dtype(), MemoryCategory::activations, "projection gradient");
    context.tp->reduce_scatter(by_rank, part, Reduction::sum);
    return part;
}

}  // namespace

PackedQkv::PackedQkv(const Attention& mixer, const LayerSite& site)
    : mixer_(mixer),
      normalization_(site.layer.norms.norm.kind),
      rotated_(rotated_width(mixer)),
      angles_(rotary_angles(mixer.rotary.value_or(Rotary{}), rotated_, site.max_positions)),
      q_norm_weight_(site.weights.find(site.prefix + "self_attention.q_layernorm.weight")),
      q_norm_bias_(site.weights.find(site.prefix + "self_attention.q_layernorm.bias")),
      k_norm_weight_(site.weights.find(site.prefix + "self_attention.k_layernorm.weight")),
      k_norm_bias_(site.weights.find(site.prefix + "self_attention.k_layernorm.bias")),
      projection_(site, "self_attention.linear_qkv") {}

Tensor PackedQkv::normalised(const RankContext& context, const Tensor& heads, const Weight& weight, const Weight& bias,
                             NormStatistics& statistics) const {
    if (mixer_.qk_norm == QkNorm::per_head) return HeadNorms(context, mixer_.head_dim, normalization_, weight, bias).forward(heads);
    const Tensor rows = norm_rows(mixer_, heads);
    const Tensor y = mixer_.qk_norm == QkNorm::full_width
                         ? WholeWidthNorm(context, normalization_, context.norm_epsilon, weight, bias).forward(rows, statistics)
                         : norm(rows, weight.value, bias.value, normalization_, context.norm_epsilon, statistics);
    return y.view(heads.shape());
}

Tensor PackedQkv::through_norm(const RankContext& context, const Tensor& dy, const Tensor& heads, const Weight& weight, const Weight& bias,
                               const NormStatistics& statistics) const {
    if (mixer_.qk_norm == QkNorm::per_head) return HeadNorms(context, mixer_.head_dim, normalization_, weight, bias).backward(dy, heads);
    const Tensor d_rows = norm_rows(mixer_, dy), rows = norm_rows(mixer_, heads);
    const Tensor dx = mixer_.qk_norm == QkNorm::full_width
                          ? WholeWidthNorm(context, normalization_, context.norm_epsilon, weight, bias).backward(d_rows, rows, statistics)
                          : norm_backward(d_rows, rows, weight.value, statistics, normalization_, weight.gradient, bias.gradient);
    return dx.view(heads.shape());
}

QkvParts PackedQkv::forward(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                            PackedQkvSaved& saved) const {
    const std::int64_t tp = context.tp->size(), heads = mixer_.heads / tp, head_dim = mixer_.head_dim;
    const Tensor packed = projection_.forward(context, normed, &saved.adapter);
    if (mixer_.qkv_clip > 0) {
        clip(packed, mixer_.qkv_clip);
        saved.clipped = packed;
    }
    QkvParts parts;
    if (shares_groups(mixer_, context)) {
        const SharedGroup group(mixer_, *context.tp);
        const std::int64_t group_heads = heads * group.ranks, rows = packed.shape()[0];
        parts = split_qkv(gather_group(context, group, packed), group_heads, 1, head_dim);
        parts.q =
            columns(parts.q.view({rows, group_heads * head_dim}), group.place * heads * head_dim, (group.place + 1) * heads * head_dim)
                .view({rows, heads, head_dim});
    } else if (mixer_.output_gate) {
        // Queries and gate of a group are stored as twice the number of heads.
        const std::int64_t groups = mixer_.kv_heads / tp, rows = packed.shape()[0], width = heads / groups * head_dim;
        parts = split_qkv(packed, 2 * heads, groups, head_dim);
        const Tensor both = parts.q.view({rows * groups, 2 * width});
        saved.gate = columns(both, width, 2 * width).view({rows, heads * head_dim});
        parts.q = columns(both, 0, width).view({rows, heads, head_dim});
    } else {
        parts = split_qkv(packed, heads, mixer_.kv_heads / tp, head_dim);
    }
    if (mixer_.qk_norm_after_rotary) rotate(context, microbatch, parts.q, parts.k, false);
    if (q_norm_weight_.defined()) {
        saved.q_before_norm = parts.q;
        saved.k_before_norm = parts.k;
        parts.q = normalised(context, parts.q, q_norm_weight_, q_norm_bias_, saved.q_statistics);
        parts.k = normalised(context, parts.k, k_norm_weight_, k_norm_bias_, saved.k_statistics);
    }
    if (!mixer_.qk_norm_after_rotary) rotate(context, microbatch, parts.q, parts.k, false);
    return parts;
}

bool PackedQkv::stays_packed(const RankContext& context) const {
    return context.attends_packed && context.cp->size() == 1 && !shares_groups(mixer_, context) && !mixer_.output_gate &&
           mixer_.qkv_clip == 0 && !q_norm_weight_.defined();
}

PackedHeads PackedQkv::heads(const RankContext& context) const {
    return {mixer_.heads / context.tp->size(), mixer_.kv_heads / context.tp->size(), mixer_.head_dim};
}

Tensor PackedQkv::forward_packed(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                                 PackedQkvSaved& saved) const {
    Tensor packed = projection_.forward(context, normed, &saved.adapter);
    if (rotated_ > 0) rotary_in_place(packed, heads(context), positions_of(context, microbatch), rotated_, angles_, false);
    return packed;
}

Tensor PackedQkv::backward_packed(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_packed,
                                  const LinearInput& normed, PackedQkvSaved& saved) const {
    if (rotated_ > 0) rotary_in_place(d_packed, heads(context), positions_of(context, microbatch), rotated_, angles_, true);
    return projection_.backward(context, d_packed, normed, &saved.adapter);
}

void PackedQkv::rotate(const RankContext& context, const MicrobatchContext& microbatch, Tensor& q, Tensor& k, bool inverse) const {
    if (rotated_ == 0) return;
    const Positions positions = positions_of(context, microbatch);
    q = rotary(q, positions, rotated_, angles_, inverse);
    k = rotary(k, positions, rotated_, angles_, inverse);
}

Tensor PackedQkv::backward(const RankContext& context, const MicrobatchContext& microbatch, AttentionGradients gradients,
                           const Tensor& d_gate, const LinearInput& normed, PackedQkvSaved& saved) const {
    if (!mixer_.qk_norm_after_rotary) rotate(context, microbatch, gradients.q, gradients.k, true);
    if (q_norm_weight_.defined()) {
        gradients.q = through_norm(context, gradients.q, saved.q_before_norm, q_norm_weight_, q_norm_bias_, saved.q_statistics);
        gradients.k = through_norm(context, gradients.k, saved.k_before_norm, k_norm_weight_, k_norm_bias_, saved.k_statistics);
    }
    if (mixer_.qk_norm_after_rotary) rotate(context, microbatch, gradients.q, gradients.k, true);
    if (d_gate.defined()) {
        const std::int64_t rows = gradients.q.shape()[0], heads = gradients.q.shape()[1], groups = mixer_.kv_heads / context.tp->size();
        const std::int64_t width = heads / groups * mixer_.head_dim;
        const Tensor both =
            context.device->empty({rows * groups, 2 * width}, d_gate.dtype(), MemoryCategory::activations, "gradient of queries and gate");
        set_columns(gradients.q.view({rows * groups, width}), both, 0);
        set_columns(d_gate.view({rows * groups, width}), both, width);
        gradients.q = both.view({rows, 2 * heads, mixer_.head_dim});
    }
    if (!shares_groups(mixer_, context)) {
        const Tensor d_packed = join_qkv({gradients.q, gradients.k, gradients.v});
        gradients = {};
        return through_projection(context, d_packed, normed, saved);
    }
    // The other ranks' queries of the group have no gradient here; theirs come with the sum.
    const SharedGroup group(mixer_, *context.tp);
    const std::int64_t rows = gradients.q.shape()[0], heads = gradients.q.shape()[1], head_dim = mixer_.head_dim;
    const Tensor dq = context.device->zeros({rows, heads * group.ranks, head_dim}, gradients.q.dtype(), MemoryCategory::activations,
                                            "gradient of the group's queries");
    set_columns(gradients.q.view({rows, heads * head_dim}), dq.view({rows, heads * group.ranks * head_dim}),
                group.place * heads * head_dim);
    const Tensor d_packed = scatter_group(context, group, join_qkv({dq, gradients.k, gradients.v}));
    gradients = {};
    return through_projection(context, d_packed, normed, saved);
}

Tensor PackedQkv::through_projection(const RankContext& context, const Tensor& d_packed, const LinearInput& normed,
                                     PackedQkvSaved& saved) const {
    if (saved.clipped.defined()) clip_gradient(d_packed, saved.clipped, mixer_.qkv_clip);
    return projection_.backward(context, d_packed, normed, &saved.adapter);
}

}  // namespace mgplan::model

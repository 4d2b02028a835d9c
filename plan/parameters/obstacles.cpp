// Layouts that kinds of layers rule out.

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "plan/layers/layer.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan {
namespace {

/// Collects, in words, what of layers is not computed under one division: "context parallelism over Mamba-2". One add() for each kind.
class Obstacles {
public:
    Obstacles(const ParallelSizes& division, std::int64_t hidden) : division_(division), hidden_(hidden) {}

    void add(const Attention& a) {
        const std::int64_t tp = division_.tp;
        if (a.heads % tp != 0 || !packed_heads_divide(a, tp))
            say("tp = {} over {} heads with {} kv heads", tp, a.heads, a.kv_heads);
        else if (a.qk_norm == QkNorm::full_width && tp > a.kv_heads)
            say("QK-norm over the whole width with tp = {} above {} kv heads", tp, a.kv_heads);
        else if (a.output_gate && tp > a.kv_heads)
            say("a gate of attention's output with tp = {} above {} kv heads", tp, a.kv_heads);
    }
    void add(const LatentAttention& a) {
        if (a.heads % division_.tp != 0) say("tp = {} over {} heads of latent attention", division_.tp, a.heads);
    }
    /// Both sources hold it whole and alone: DSv4HybridAttention asserts a tp of 1 and has cp for packed documents in whole pieces alone;
    /// the tp plan of transformers leaves it whole.
    void add(const CompressedAttention& /*attention*/) {
        if (division_.tp > 1) say("tp = {} over compressed attention, whose keys all heads share", division_.tp);
        refuse_context("compressed attention");
    }
    void add(const GemmaAttention& a) {
        divide("the attention of Gemma 4", "kv heads", a.kv_heads);
        if (a.layer_input_width > 0) divide("the inputs of layers", "words", a.layer_input_rows);
        refuse_context("the attention of Gemma 4");
    }
    void add(const Gemma3nLayer& layer) {
        divide("layers of Gemma 3n", "kv heads", layer.attention.kv_heads);
        divide("layers of Gemma 3n", "columns of the MLP", layer.mlp.width);
        divide("the inputs of layers", "words", layer.attention.layer_input_rows);
        refuse_context("layers of Gemma 3n");
    }
    void add(const Mamba& mamba) {
        divide("Mamba", "channels", mamba.inner_width);
        refuse_context("Mamba");
    }
    void add(const Mamba2& mamba2) {
        divide_mamba2(mamba2);
        exchange("Mamba-2", "heads", mamba2.heads);
        // cp divides whole heads, and either whole groups or each group over the same number of ranks (ssm/mamba_context_parallel.py,
        // MambaContextParallel).
        const std::int64_t groups = mamba2.groups / division_.tp;
        const bool shared = groups > 0 && division_.cp % groups == 0;
        if (!shared) exchange("Mamba-2", "groups", mamba2.groups);
    }
    void add(const AttentionBesideMamba2& mixer) {
        add(mixer.attention);
        add(mixer.mamba2);
    }
    void add(const SharedBlockMamba2& mixer) {
        divide("the shared block", "kv heads", mixer.block.kv_heads);
        divide("the shared block", "columns", mixer.block.ffn);
        divide_mamba2(mixer.mamba2);
        refuse_context("blocks that layers share");
    }
    void add(const GatedDeltaNet& net) {
        divide("gated delta nets", "key heads", net.key_heads);
        divide("gated delta nets", "value heads", net.value_heads);
        exchange("gated delta nets", "key heads", net.key_heads);
        exchange("gated delta nets", "value heads", net.value_heads);
    }
    void add(const KimiDeltaAttention& a) {
        divide("Kimi delta attention", "heads", a.heads);
        refuse_context("Kimi delta attention");
    }
    void add(const LightningAttention& a) {
        divide("lightning attention", "heads", a.heads);
        refuse_context("lightning attention");
    }
    void add(const ShortConvolution& /*convolution*/) {
        divide("short convolutions", "channels", hidden_);
        refuse_context("short convolutions");
    }
    void add(const GatedLinearRecurrence& recurrence) {
        divide("recurrent blocks", "heads", recurrence.heads);
        refuse_context("recurrent blocks");
    }
    void add(const Mlp& mlp) { divide("MLPs", "columns", mlp.width); }
    void add(const Mixture& /*mixture*/) {}

    [[nodiscard]] std::vector<std::string> take() { return std::move(all_); }

private:
    template <class... Values>
    void say(fmt::format_string<const Values&...> text, const Values&... values) {
        std::string obstacle = fmt::format(text, values...);
        if (std::find(all_.begin(), all_.end(), obstacle) == all_.end()) all_.push_back(std::move(obstacle));
    }
    /// tp has to divide a count.
    void divide(std::string_view layer, std::string_view what, std::int64_t count) {
        if (count % division_.tp != 0) say("tp = {} over {} {} of {}, which it does not divide", division_.tp, count, what, layer);
    }
    void divide_mamba2(const Mamba2& mamba2) {
        divide("Mamba-2", "heads", mamba2.heads);
        divide("Mamba-2", "groups", mamba2.groups);
    }
    /// cp has to divide what a tensor-parallel rank has of a count: layers with a state along the sequence exchange heads for it
    /// (model/layers/head_exchange.hpp).
    void exchange(std::string_view layer, std::string_view what, std::int64_t count) {
        if (division_.cp == 1 || count % division_.tp != 0 || count / division_.tp % division_.cp == 0) return;
        say("cp = {} over {} {} of {} on a tensor-parallel rank, which it does not divide", division_.cp, count / division_.tp, what,
            layer);
    }
    void refuse_context(std::string_view layer) {
        if (division_.cp > 1) say("context parallelism over {} (cp = {})", layer, division_.cp);
    }

    const ParallelSizes& division_;
    std::int64_t hidden_;
    std::vector<std::string> all_;
};

}  // namespace

std::vector<std::string> obstacles_of_kinds(const ModelSpec& model, const ParallelSizes& sizes) {
    if (model.kinds.empty()) return {};
    Obstacles obstacles(sizes, model.hidden);
    const auto add = [&](const auto& half) { obstacles.add(half); };
    for (const Layer& layer : typed_kinds(model)) {
        if (layer.mixer) std::visit(add, *layer.mixer);
        if (layer.feed_forward) std::visit(add, *layer.feed_forward);
    }
    return obstacles.take();
}

}  // namespace mgplan

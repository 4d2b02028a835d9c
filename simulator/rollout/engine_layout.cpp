#include "simulator/rollout/engine_layout.hpp"

#include <algorithm>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "plan/text/text.hpp"

namespace mgplan::simulator {
namespace {

/// Heads that an engine divides over tp; kv_heads 0: one latent for all of them.
struct Heads {
    std::int64_t queries = 0, kv = 0;
};

Heads heads_of(const Mixer& mixer) {
    if (const auto* attention = std::get_if<Attention>(&mixer)) return {attention->heads, attention->kv_heads};
    if (const auto* latent = std::get_if<LatentAttention>(&mixer)) return {latent->heads, 0};
    return {};
}

bool breaks(const Layer& layer, const EngineLayout& layout) {
    const std::int64_t tp = layout.tp;
    if (layer.mixer) {
        const Heads heads = heads_of(*layer.mixer);
        if (heads.queries % tp != 0) return true;
        if (heads.kv > 0 && heads.kv % tp != 0 && tp % heads.kv != 0) return true;
    }
    if (const auto* mlp = feed_forward_as<Mlp>(layer); mlp != nullptr && mlp->width % tp != 0) return true;
    const auto* mixture = feed_forward_as<Mixture>(layer);
    return mixture != nullptr && (layout.expert_parallel ? mixture->experts < layout.gpus() : mixture->expert_ffn % tp != 0);
}

}  // namespace

std::vector<std::string> unknown_caches(const Model& model) {
    std::vector<std::string> unknown;
    for (const Layer& layer : model.kinds) {
        if (!layer.counted.empty()) unknown.emplace_back("layers that are counted alone");
        if (!layer.mixer || std::holds_alternative<Attention>(*layer.mixer) || std::holds_alternative<LatentAttention>(*layer.mixer))
            continue;
        unknown.emplace_back(std::visit([](const auto& mixer) { return std::decay_t<decltype(mixer)>::kTraits.words; }, *layer.mixer));
    }
    std::ranges::sort(unknown);
    unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
    return unknown;
}

std::vector<std::int64_t> possible_tp(const Model& model, std::int64_t most, bool expert_parallel) {
    std::vector<std::int64_t> possible;
    for (std::int64_t tp = 1; tp <= most; ++tp) {
        const EngineLayout layout{tp, 1, expert_parallel};
        if (std::ranges::none_of(model.kinds, [&](const Layer& layer) { return breaks(layer, layout); })) possible.push_back(tp);
    }
    return possible;
}

std::vector<std::string> obstacles(const Model& model, const EngineLayout& layout) {
    std::vector<std::string> found;
    const std::int64_t tp = layout.tp;
    const auto way_out = [&] {
        std::vector<std::string> texts;
        for (const std::int64_t one : possible_tp(model, std::max<std::int64_t>(tp, 64), layout.expert_parallel))
            texts.push_back(std::to_string(one));
        return texts.empty() ? std::string("leave tp out") : fmt::format("use {}", any_of_text(texts));
    };
    const auto add = [&](std::string text) {
        if (std::ranges::find(found, text) == found.end()) found.push_back(std::move(text));
    };
    for (const Layer& layer : model.kinds) {
        if (layer.mixer) {
            const Heads heads = heads_of(*layer.mixer);
            if (heads.queries % tp != 0) add(fmt::format("tp = {} does not divide {} attention heads; {}", tp, heads.queries, way_out()));
            if (heads.kv > 0 && heads.kv % tp != 0 && tp % heads.kv != 0)
                add(fmt::format("tp = {} neither divides {} kv heads nor is a multiple of them; {}", tp, heads.kv, way_out()));
        }
        if (const auto* mlp = feed_forward_as<Mlp>(layer); mlp != nullptr && mlp->width % tp != 0)
            add(fmt::format("tp = {} does not divide the MLP's width of {}; {}", tp, mlp->width, way_out()));
        const auto* mixture = feed_forward_as<Mixture>(layer);
        if (mixture == nullptr) continue;
        if (layout.expert_parallel && mixture->experts < layout.gpus())
            add(fmt::format("ep = {} is more than the {} experts; use a smaller tp or dp", layout.gpus(), mixture->experts));
        if (!layout.expert_parallel && mixture->expert_ffn % tp != 0)
            add(fmt::format("tp = {} does not divide the experts' width of {}; {}", tp, mixture->expert_ffn, way_out()));
    }
    return found;
}

}  // namespace mgplan::simulator

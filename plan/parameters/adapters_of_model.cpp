#include "plan/parameters/adapters_of_model.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

constexpr std::array<std::pair<std::string_view, bool Adapters::*>, 8> kTargets{{{"qkv", &Adapters::qkv},
                                                                                 {"proj", &Adapters::proj},
                                                                                 {"fc1", &Adapters::fc1},
                                                                                 {"fc2", &Adapters::fc2},
                                                                                 {"experts", &Adapters::experts},
                                                                                 {"latent", &Adapters::latent},
                                                                                 {"in_proj", &Adapters::in_proj},
                                                                                 {"out_proj", &Adapters::out_proj}}};

/// True if a layer of the model has a linear layer of this target.
bool has_target(const Model& model, bool Adapters::*target) {
    Adapters one{.qkv = false, .proj = false, .fc1 = false, .fc2 = false, .experts = false};
    one.*target = true;
    return std::any_of(model.kinds.begin(), model.kinds.end(), [&](Layer layer) {
        layer.adapters.reset();
        const auto all = tensors(layer, model.hidden);
        return std::any_of(all.begin(), all.end(), [&](const LayerTensor& tensor) {
            return one.stand_beside(std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
        });
    });
}

std::string known_targets(const Model& model) {
    std::vector<std::string> names;
    for (const auto& [name, target] : kTargets) {
        if (has_target(model, target)) names.emplace_back(name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

/// Collects what an option states.
class OptionReader {
public:
    OptionReader(const Model& model, std::string where) : model_(model), where_(std::move(where)) {}

    void take(std::string_view word) {
        const auto equals = word.find('=');
        if (equals == std::string_view::npos) {
            if (takes_targets_)
                take_target(word);
            else if (word != "default")
                problems_.add("{}: '{}' is not known; write rank=16, alpha=32 or targets=qkv,proj", where_, word.substr(0, 40));
            return;
        }
        const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
        takes_targets_ = key == "targets";
        if (takes_targets_)
            take_target(value);
        else if (key == "rank")
            take_rank(value);
        else if (key == "alpha")
            take_alpha(value);
        else if (key == "base")
            take_base(value);
        else
            problems_.add("{}: '{}' is not known; write rank, alpha, targets or base", where_, key.substr(0, 40));
    }

    [[nodiscard]] Adapters finish() {
        if (!states_targets_) {
            // As Megatron-Bridge's recipes of hybrids name them (067f987d, recipes/nemotronh/h100/nemotron_3_nano.py).
            adapters_.in_proj = adapters_.out_proj = std::any_of(model_.kinds.begin(), model_.kinds.end(),
                                                                 [](const Layer& layer) { return mixer_as<Mamba2>(layer) != nullptr; });
            for (const auto& [name, target] : kTargets) adapters_.*target = adapters_.*target && has_target(model_, target);
        }
        problems_.throw_if_any();
        return adapters_;
    }

private:
    void take_rank(std::string_view value) {
        const auto number = parse_integer(value);
        if (!number || *number < 1 || *number > ModelLimits::hidden)
            problems_.add("{}: rank = '{}' is out of range; give a whole number from 1 to {}", where_, value.substr(0, 40),
                          ModelLimits::hidden);
        else
            adapters_.rank = *number;
    }
    void take_alpha(std::string_view value) {
        const auto number = parse_real(value);
        if (!number || !(*number > 0) || *number > ModelLimits::multiplier)
            problems_.add("{}: alpha = '{}' is out of range; give a number above 0 and at most {:g}", where_, value.substr(0, 40),
                          ModelLimits::multiplier);
        else
            adapters_.alpha = *number;
    }
    void take_base(std::string_view value) {
        if (value == "nf4")
            adapters_.base = FrozenStorage::nf4;
        else
            problems_.add("{}: base = '{}' is not known; write base=nf4, or leave it out to keep frozen weights in the model's own type",
                          where_, value.substr(0, 40));
    }
    void take_target(std::string_view name) {
        if (!std::exchange(states_targets_, true)) {
            for (const auto& entry : kTargets) adapters_.*entry.second = false;
        }
        const auto found = std::find_if(kTargets.begin(), kTargets.end(), [&](const auto& entry) { return entry.first == name; });
        if (found == kTargets.end() || !has_target(model_, found->second))
            problems_.add("{}: {} has no linear layer '{}'; use {}", where_, model_.name, name.substr(0, 40), known_targets(model_));
        else
            adapters_.*found->second = true;
    }

    const Model& model_;
    std::string where_;
    Adapters adapters_;
    bool takes_targets_ = false, states_targets_ = false;
    Problems problems_;
};

/// The kind of layer whose frozen tensors are not known; "" if there is none.
std::string_view unknown_kind(const Model& model) {
    for (const Layer& layer : model.kinds) {
        if (!layer.counted.empty()) return "layers that are counted alone";
        if (layer.mixer && carries_state(*layer.mixer) && mixer_as<Mamba2>(layer) == nullptr && mixer_as<GatedDeltaNet>(layer) == nullptr)
            return "mixers other than softmax attention, Mamba-2 and gated delta nets";
        if (layer.residual.hyper_connections) return "several residual streams";
        if (const auto* const mlp = feed_forward_as<Mlp>(layer); mlp != nullptr && mlp->activation == Activation::xielu)
            return "trained activations (xIELU)";
        if (const auto* const mixture = feed_forward_as<Mixture>(layer); mixture != nullptr && mixture->branch_norms)
            return "experts behind norms of their own";
        if (const auto* const latent = mixer_as<LatentAttention>(layer); latent != nullptr && latent->index_heads > 0)
            return "sparse attention";
    }
    return "";
}

}  // namespace

Adapters parse_adapters(const std::string& text, const ModelSpec& model, const std::string& where) {
    const Model typed = typed_model(model);
    OptionReader reader(typed, where);
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        reader.take(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
    }
    ModelSpec adapted = model;
    adapted.adapters = reader.finish();
    check_adapters(adapted, where);
    return *adapted.adapters;
}

void check_adapters(const ModelSpec& model, const std::string& where) {
    if (!model.adapters) return;
    Problems problems;
    const Adapters& adapters = *model.adapters;
    if (adapters.rank < 1 || adapters.rank > ModelLimits::hidden)
        problems.add("{}: rank = {} is out of range; give a whole number from 1 to {}", where, adapters.rank, ModelLimits::hidden);
    if (!(adapters.alpha > 0) || adapters.alpha > ModelLimits::multiplier)
        problems.add("{}: alpha = {} is out of range; give a number above 0 and at most {:g}", where, adapters.alpha,
                     ModelLimits::multiplier);
    problems.throw_if_any();
    if (const std::string_view kind = unknown_kind(typed_model(model)); !kind.empty())
        problems.add_missing_fact("{}: adapters (LoRA) are not predicted with {}, which {} has; train all weights, without adapters", where,
                                  kind, model.name);
    else if (trained_parameters(model) == 0)
        problems.add("{}: no linear layer of {} has an adapter; name one of the targets", where, model.name);
    problems.throw_if_any();
}

std::vector<std::string> targets_in(const std::string& targets, const ModelSpec& model) {
    const Model typed = typed_model(model);
    std::vector<std::string> found = split(targets, ',');
    std::erase_if(found, [&](const std::string& name) {
        return std::none_of(kTargets.begin(), kTargets.end(),
                            [&](const auto& entry) { return entry.first == name && has_target(typed, entry.second); });
    });
    return found;
}

std::vector<std::string> adapter_obstacles(const ModelSpec& model, const TrainingSpec& training, bool runs) {
    std::vector<std::string> obstacles;
    if (!model.adapters) return obstacles;
    if (runs && quantised(training.precision)) obstacles.emplace_back("quantised products (use --precision bf16)");
    if (training.megatron.fully_sharded.active()) obstacles.emplace_back("sharded parameters or gradients (use --sharding optimizer)");
    if (training.megatron.weight_shards.active()) obstacles.emplace_back("weights split over neighbours");
    if (training.megatron.optimizer != OptimizerKind::adam) obstacles.emplace_back("another optimizer than Adam");
    if (model.mtp_layers > 0) obstacles.emplace_back("multi-token prediction");
    if (model.adapters->base == FrozenStorage::nf4) {
        if (runs) obstacles.emplace_back("frozen weights in nf4 (leave base out)");
        if (quantised(training.precision))
            obstacles.emplace_back("frozen weights in nf4 next to quantised products (use --precision bf16)");
        if (model.moe) obstacles.emplace_back("experts in nf4 (bitsandbytes leaves them in 16 bits; leave base out)");
    }
    if (runs && model.adapters->experts && model.adapters->shared_by_experts)
        obstacles.emplace_back("adapters that the experts of a rank share (leave experts out of the targets)");
    return obstacles;
}

std::string adapters_text(const ModelSpec& model) {
    std::vector<std::string_view> targets;
    const Model typed = typed_model(model);
    for (const auto& [name, target] : kTargets) {
        if ((*model.adapters).*target && has_target(typed, target)) targets.push_back(name);
    }
    return fmt::format("LoRA: rank {}, alpha {:g} on {}{}; {} of {} parameters trained", model.adapters->rank, model.adapters->alpha,
                       fmt::join(targets, ", "), model.adapters->base == FrozenStorage::nf4 ? " of weights in nf4" : "",
                       with_thousands(trained_parameters(model)), with_thousands(total_parameters(model)));
}

std::int64_t trained_parameters(const ModelSpec& model) {
    const Model typed = typed_model(model);
    std::int64_t sum = 0;
    for (const std::uint16_t kind : typed.kind_of_layer) {
        for (const LayerTensor& tensor : tensors(typed.kinds[kind], typed.hidden)) {
            if (!tensor.trained) continue;
            std::int64_t elements = tensor.copies;
            for (const std::int64_t extent : tensor.shape) elements *= extent;
            sum += elements;
        }
    }
    return sum;
}

}  // namespace mgplan

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/options.hpp"
#include "formats/model_source.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/model_summary.hpp"
#include "reports/table.hpp"
#include "simulator/price/recorded_flops.hpp"

namespace mgplan::cli {
namespace {

using formats::Job;
using Json = nlohmann::ordered_json;
using reports::Align;
using reports::Table;

/// "8.030 B", "124.4 M"
std::string parameters_text(std::int64_t count) {
    const auto real = static_cast<double>(count);
    if (count >= 1'000'000'000) return fmt::format("{:.3f} B", real / 1e9);
    return fmt::format("{:.1f} M", real / 1e6);
}

std::string list_models(Format format) {
    auto models = Json::array();
    Table table({{"model", Align::left},
                 {"layers"},
                 {"hidden"},
                 {"heads\n/kv", Align::right},
                 {"experts\n/token", Align::right},
                 {"vocabulary"},
                 {"parameters"},
                 {"used by\na token"}});
    for (const auto& name : formats::preset_names()) {
        const ModelSpec model = formats::load_model(name).model;
        const std::int64_t total = total_parameters(model), active = active_parameters(model);
        if (format == Format::json) {
            models.push_back({{"name", name},
                              {"layers", model.layers},
                              {"hidden", model.hidden},
                              {"heads", model.heads},
                              {"kv_heads", model.kv_heads},
                              {"experts", model.moe ? model.moe->experts : 0},
                              {"top_k", model.moe ? model.moe->top_k : 0},
                              {"vocab", model.vocab},
                              {"total_parameters", total},
                              {"active_parameters", active},
                              {"source", model.source}});
            continue;
        }
        const bool csv = format == Format::csv;
        table.add_row({name, std::to_string(model.layers), std::to_string(model.hidden),
                       model.kv_heads == model.heads ? std::to_string(model.heads) : fmt::format("{}/{}", model.heads, model.kv_heads),
                       model.moe ? fmt::format("{}/{}", model.moe->experts, model.moe->top_k) : "-", std::to_string(model.vocab),
                       csv ? std::to_string(total) : parameters_text(total), csv ? std::to_string(active) : parameters_text(active)});
    }
    if (format == Format::json) return Json{{"models", std::move(models)}}.dump(2) + "\n";
    if (format == Format::csv) return table.to_csv();
    return table.to_text() + "\nmgplan models show NAME prints one, with --format json in the form that --model FILE reads.\n";
}

std::string_view name_of(Activation activation) {
    switch (activation) {
        case Activation::gelu:
            return "GELU";
        case Activation::silu:
            return "SiLU";
        case Activation::relu:
            return "ReLU";
        case Activation::squared_relu:
            return "squared ReLU";
        case Activation::gelu_exact:
            return "GELU by erf";
        case Activation::clamped_swish:
            return "clamped swish";
        case Activation::xielu:
            return "xIELU";
    }
    return "";
}

std::string position_text(const ModelSpec& model) {
    const std::string up_to = fmt::format("up to {} tokens", with_thousands(model.max_positions));
    if (model.position == PositionEmbedding::none) return "none, " + up_to;
    if (model.position == PositionEmbedding::learned) return "learned, " + up_to;
    return fmt::format("rotary{}, {}", model.rotary_fraction < 1 ? fmt::format(" on {:g} %", 100 * model.rotary_fraction) : "", up_to);
}

std::string attention_text(const ModelSpec& model) {
    if (model.mla) {
        const MlaSpec& mla = *model.mla;
        return fmt::format("latent, {} heads of {} + {} (v {}), ranks q {} kv {}", model.heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim,
                           mla.v_head_dim, mla.q_lora_rank == 0 ? "-" : std::to_string(mla.q_lora_rank), mla.kv_lora_rank) +
               (mla.index_heads == 0 ? ""
                                     : fmt::format("; an indexer of {} heads of {} chooses {}", mla.index_heads, mla.index_head_dim,
                                                   counted(mla.index_top_k, "key")));
    }
    std::string window;
    if (model.sliding_window > 0) {
        window = fmt::format(", sliding window of {}", with_thousands(model.sliding_window));
        if (!model.window_layers.empty())
            window += fmt::format(" (of {} layers)", std::count(model.window_layers.begin(), model.window_layers.end(), true));
        if (model.full_attention_every > 0) window += fmt::format(" (none in one layer of {})", model.full_attention_every);
    }
    const std::string clip = model.qkv_clip > 0 ? fmt::format(", clipped at {:g}", model.qkv_clip) : "";
    return fmt::format("{} heads of {}, {} for keys and values{}{}{}", model.heads, model.head_dim, model.kv_heads, clip, window,
                       model.attention_sinks ? ", sinks" : "");
}

/// Kind and places of a layer's norms, and the order of its halves, where they differ from a llama's.
std::string arrangement_text(const ModelSpec& model) {
    std::string text = model.normalization == Normalization::layer_norm ? "LayerNorm" : "RMSNorm";
    if (!model.norm_weight)
        text += " without weight and bias";
    else if (model.normalization == Normalization::layer_norm && !model.norm_bias)
        text += " without bias";
    if (model.post_norms) text += model.pre_norms ? ", before and after attention and MLP" : ", after attention and MLP";
    if (model.order == LayerOrder::parallel) text += ", attention and MLP in parallel";
    if (model.order == LayerOrder::parallel_shared_norm) text += ", attention and MLP in parallel after one norm";
    return text;
}

std::string biases_text(const ModelSpec& model) {
    std::vector<std::string> biases;
    if (model.qkv_bias) biases.emplace_back("q, k, v");
    if (model.attention_output_bias) biases.emplace_back("attention output");
    if (model.mlp_bias) biases.emplace_back("MLP");
    if (model.moe && model.moe->router_bias) biases.emplace_back("router");
    if (model.output_bias) biases.emplace_back("output layer");
    return biases.empty() ? "none" : fmt::format("{}", fmt::join(biases, ", "));
}

/// Where the residual path begins, and the factors of both its terms by kind of half.
std::string residual_text(const NormedResidual& residual) {
    const auto factors = [](const PathFactors& one) { return fmt::format("{:g} and {:g}", one.path, one.branch); };
    return fmt::format("after the norms; factors of path and branch: attention {}, mixers with a state {}, MLP {}",
                       factors(residual.attention), factors(residual.state), factors(residual.mlp));
}

/// Tables that hold a row for each word, place or type: embedding, output layer. A head of labels is none of these.
std::int64_t embedding_parameters(const ModelSpec& model) {
    const std::int64_t outputs = model.labels || model.tied_embeddings ? 0 : model.vocab,
                       places = model.position == PositionEmbedding::learned ? model.max_positions : 0;
    return (model.vocab + outputs) * (model.word_width > 0 ? model.word_width : model.hidden) +
           (places + model.token_types) * model.hidden + (model.output_bias && !model.labels ? model.vocab : 0);
}

/// Operations that forward and backward of one token take in a sequence of a usual length.
struct TokenFlops {
    std::int64_t sequence;
    double flops;
};
TokenFlops flops_of_token(const ModelSpec& model) {
    constexpr std::int64_t kUsual = 4096;
    const std::int64_t sequence = model.default_sequence.value_or(std::min(kUsual, model.max_positions));
    const BatchSpec one{.global_batch = 1, .sequence = sequence};
    return {sequence, simulator::model_flops(model, one) / static_cast<double>(sequence)};
}

/// Facts about one model for a person, one a row; `plain`: counts without separators.
Table facts(const Job& job, bool plain) {
    const auto number = [&](std::int64_t value) { return plain ? std::to_string(value) : with_thousands(value); };
    const ModelSpec& model = job.model;
    Table table({{"fact", Align::left}, {"value", Align::left}});
    const auto row = [&](std::string_view fact, std::string value) { table.add_row({std::string(fact), std::move(value)}); };
    const std::int64_t mtp = reports::mtp_parameters(model);
    row("parameters", number(total_parameters(model)));
    if (active_parameters(model) != total_parameters(model)) row("used by a token", number(active_parameters(model)));
    row("in tables of words", number(embedding_parameters(model)));
    if (model.labels > 0) row("in the head of labels", number(*model.labels * (model.hidden + (model.output_bias ? 1 : 0))));
    if (mtp > 0) {
        row("with multi-token prediction", number(total_parameters(model) + mtp));
        if (model.moe) row("of these used by a token", number(active_parameters(model) + reports::active_mtp_parameters(model)));
    }
    if (!is_counted_only(model)) {
        const TokenFlops token = flops_of_token(model);
        row("FLOPs a token", fmt::format("{:.4g} G forward and backward, in {}", token.flops / 1e9, counted(token.sequence, "token")));
    }
    if (!model.type.empty())
        row("type",
            model.assumed_architecture.empty() ? model.type : fmt::format("{}, read as {}", model.type, model.assumed_architecture));
    row("layers", plain ? std::to_string(model.layers) : fmt::format("{}: {}", model.layers, reports::layers_by_kind_text(model)));
    if (model.mtp_layers > 0) row("layers of multi-token prediction", std::to_string(model.mtp_layers));
    row("hidden size", std::to_string(model.hidden));
    const bool described = model.kinds.empty();
    if (described) row("attention", attention_text(model));
    if (described) row("MLP", fmt::format("{}, {}{}", model.ffn, name_of(model.activation), model.gated_mlp ? ", gated" : ""));
    if (model.moe) {
        const MoeSpec& moe = *model.moe;
        row("mixture of experts", fmt::format("{} of {} experts of {}", moe.top_k, moe.experts, moe.expert_ffn));
        if (moe.shared_ffn > 0) row("shared experts", fmt::format("{} together{}", moe.shared_ffn, moe.shared_gate ? ", gated" : ""));
        std::string router = moe.score == RouterScore::sigmoid ? "sigmoid" : "softmax";
        if (moe.expert_bias) router += ", biases of experts in place of an auxiliary loss";
        if (moe.groups > 0) router += fmt::format(", {} of {} groups of experts", moe.group_top_k, moe.groups);
        if (moe.sequence_auxiliary_loss > 0) router += ", a balancing loss within each sequence";
        row("router", router);
        row("MoE layers", layer_pattern_text(model.moe_layers));
    }
    if (described) row("norm", arrangement_text(model));
    if (model.normed_residual) row("residual path", residual_text(*model.normed_residual));
    if (described) row("biases", biases_text(model));
    row("positions", position_text(model));
    const std::string output = model.labels == 0       ? "and no output layer"
                               : model.labels          ? fmt::format("and a head of {}", counted(*model.labels, "label"))
                               : model.tied_embeddings ? "tied embedding"
                                                       : "untied embedding";
    row("vocabulary", fmt::format("{}, {}", with_thousands(model.vocab), output));
    if (model.attention_dropout > 0 || model.hidden_dropout > 0)
        row("dropout", fmt::format("attention {:g}, hidden {:g}", model.attention_dropout, model.hidden_dropout));
    if (model.default_sequence) row("sequence", fmt::format("{} tokens", with_thousands(*model.default_sequence)));
    if (model.default_global_batch) row("global batch", fmt::format("{} sequences", with_thousands(*model.default_global_batch)));
    const auto features = features_not_computed(model);
    if (is_counted_only(model))
        row("memory and time", model.labels == 0 ? "not computed: without an output layer nothing is trained"
                                                 : "not computed: no layer here does what these layers do");
    if (!features.empty()) row("not predicted", fmt::format("{}", fmt::join(features, ", ")));
    for (const auto& assumption : job.assumptions) row("assumed", assumption);
    if (!job.unused_fields.empty()) row("fields not used", fmt::format("{}", fmt::join(job.unused_fields, ", ")));
    row("source", model.source);
    return table;
}

std::string show(const Job& job, Format format) {
    if (format == Format::json) {
        Json json = reports::model_summary_to_json(job.model);
        // Names that start with an underscore are for people: reading passes over them.
        json["_total_parameters"] = total_parameters(job.model);
        json["_active_parameters"] = active_parameters(job.model);
        json["_embedding_parameters"] = embedding_parameters(job.model);
        if (!is_counted_only(job.model)) {
            const TokenFlops token = flops_of_token(job.model);
            json["_flops_per_token"] = token.flops;
            json["_flops_sequence"] = token.sequence;
        }
        json["unused_fields"] = job.unused_fields;
        return json.dump(2) + "\n";
    }
    if (format == Format::csv) return facts(job, true).to_csv();
    return fmt::format("{}\n\n{}\n--format json prints what --model FILE reads.\n", job.model.name, facts(job, false).to_text());
}

}  // namespace

int run_models(const std::vector<std::string>& args, Console& console) {
    std::vector<std::string> words;
    Options options("models [show NAME|FILE] [options]",
                    "Lists the models mgplan knows, or shows one with its parameter count and source.");
    std::optional<std::string> assume;
    declare_assume_option(options, assume);
    options.positional("show NAME", words, 2,
                       "a preset or the Hugging Face id of one, a config.json or its folder, Megatron-LM arguments, mgplan's JSON");
    if (!options.parse(args, console.out)) return kDone;
    if (words.empty()) {
        options.write(console, list_models(options.format()));
        return kDone;
    }
    if (words.front() != "show")
        throw ConfigError(
            fmt::format("models: unknown word '{}'; write mgplan models, or mgplan models show NAME", words.front().substr(0, 60)));
    if (words.size() < 2) throw ConfigError("models show needs a name; mgplan models lists them, and a file's path does too");
    const Job job = load_noted_model(words[1], assume, console);
    options.note_idle(console, "assume", job.model.assumed_architecture.empty(), "the model's type is known");
    options.write(console, show(job, options.format()));
    return kDone;
}

}  // namespace mgplan::cli

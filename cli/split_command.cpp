#include <algorithm>
#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "formats/model_source.hpp"
#include "plan/layout/stage_split.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostSplit = 65'536;
constexpr std::size_t kSplitColumns = 100;
constexpr int kMostSplitRows = 64;

struct SplitOptions {
    std::optional<std::string> model, assume;
    std::optional<std::int64_t> layers;
    std::optional<std::int64_t> mtp_layers;
    std::int64_t pp = 1;
    std::optional<std::int64_t> vpp;
    StageSplitRequest request;
};

StageSplitRequest request_of(const SplitOptions& given, std::string& assumed_architecture, Console& console) {
    StageSplitRequest request = given.request;
    if (given.model && given.layers) throw ConfigError("--model and --layers exclude each other; give one of them");
    if (given.model) {
        const auto job = load_noted_model(*given.model, given.assume, console);
        request.layers = job.model.layers;
        request.mtp_layers = job.model.mtp_layers;
        assumed_architecture = job.model.assumed_architecture;
    } else if (given.layers) {
        request.layers = *given.layers;
    } else {
        throw ConfigError("--model or --layers is missing; give the model whose layers to split, or their number");
    }
    request.mtp_layers = given.mtp_layers.value_or(request.mtp_layers);
    request.pp = static_cast<int>(given.pp);
    // A layout string gives the number of chunks.
    request.vpp = static_cast<int>(given.vpp.value_or(request.pipeline_layout ? 0 : 1));
    return request;
}

/// Returns the options that give this split, for hints: "--account-for-embedding --account-for-loss".
std::string options_for(const StageSplitRequest& request) {
    std::string text;
    if (request.first_stage_layers) text += fmt::format(" --first-stage-layers {}", *request.first_stage_layers);
    if (request.last_stage_layers) text += fmt::format(" --last-stage-layers {}", *request.last_stage_layers);
    if (request.account_for_embedding) text += " --account-for-embedding";
    if (request.account_for_loss) text += " --account-for-loss";
    if (request.pipeline_layout) text += fmt::format(" --pipeline-layout '{}'", *request.pipeline_layout);
    return text;
}

/// Makes the split; if there is no plain even one, the error names the planner's split.
StageSplit split_of(const StageSplitRequest& request) {
    try {
        return make_stage_split(request);
    } catch (const ConfigError& error) {
        if (!options_for(request).empty()) throw;
        const auto other = automatic_stage_split(request.layers, request.mtp_layers, request.pp, request.vpp);
        if (!other) throw;
        auto problems = error.problems();
        problems.push_back(fmt::format("the planner would take{}", options_for(other->request())));
        throw ConfigError(std::move(problems));
    }
}

StageSplit split_of_plan(const Options& options, const std::string& file, std::string& assumed_architecture) {
    constexpr std::array kOfPlan{"model",
                                 "assume",
                                 "layers",
                                 "mtp-layers",
                                 "pp",
                                 "vpp",
                                 "first-stage-layers",
                                 "last-stage-layers",
                                 "account-for-embedding",
                                 "account-for-loss",
                                 "pipeline-layout"};
    const Plan plan = load_asked_plan(options, file, kOfPlan);
    assumed_architecture = plan.model.assumed_architecture;
    return *plan.layout.split;
}

std::string_view name_of(SplitKind kind) {
    switch (kind) {
        case SplitKind::even:
            return "even";
        case SplitKind::account_embedding_loss:
            return "embedding or loss counted as layers";
        case SplitKind::first_last:
            return "first and last stage of their own size";
        case SplitKind::layout_string:
            return "layout string";
    }
    return "?";
}

Json to_json(const StageSplit& split, const std::string& assumed_architecture) {
    Json counts = Json::array();
    Json offsets = Json::array();
    Json stages = Json::array();
    for (int p = 0; p < split.pp(); ++p) {
        Json rank_counts = Json::array();
        Json rank_offsets = Json::array();
        Json rank_stages = Json::array();
        for (int v = 0; v < split.vpp(); ++v) {
            const auto& chunk = split.chunk(p, v);
            rank_counts.push_back(chunk.decoders);
            rank_offsets.push_back(chunk.first_decoder);
            Json stage = Json::array();
            if (chunk.embedding) stage.push_back("embedding");
            for (std::int64_t i = 0; i < chunk.decoders; ++i) stage.push_back("decoder");
            for (std::int64_t i = 0; i < chunk.mtp; ++i) stage.push_back("mtp");
            if (chunk.loss) stage.push_back("loss");
            rank_stages.push_back(std::move(stage));
        }
        counts.push_back(std::move(rank_counts));
        offsets.push_back(std::move(rank_offsets));
        stages.push_back(std::move(rank_stages));
    }
    const auto& request = split.request();
    Json pipeline_layout;
    if (request.pipeline_layout) pipeline_layout = *request.pipeline_layout;
    Json json{{"layers", request.layers},
              {"mtp_layers", request.mtp_layers},
              {"pp", split.pp()},
              {"vpp", split.vpp()},
              {"pipeline_layout", std::move(pipeline_layout)},
              {"num_layers", std::move(counts)},
              {"offset", std::move(offsets)},
              {"stages", std::move(stages)}};
    if (!assumed_architecture.empty()) json["assumed_architecture"] = assumed_architecture;
    return json;
}

void write_csv(std::ostream& out, const StageSplit& split) {
    out << "pp_rank,chunk,embedding,decoders,offset,mtp,loss\n";
    for (int p = 0; p < split.pp(); ++p) {
        for (int v = 0; v < split.vpp(); ++v) {
            const auto& chunk = split.chunk(p, v);
            out << fmt::format("{},{},{},{},{},{},{}\n", p, v, chunk.embedding ? 1 : 0, chunk.decoders, chunk.first_decoder, chunk.mtp,
                               chunk.loss ? 1 : 0);
        }
    }
}

/// "E 0-2", "59-60 m L", "-" for nothing: decoders by their numbers.
std::string cell(const StageChunk& chunk) {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " ") + part; };
    if (chunk.embedding) add("E");
    if (chunk.decoders == 1) add(std::to_string(chunk.first_decoder));
    if (chunk.decoders > 1) add(fmt::format("{}-{}", chunk.first_decoder, chunk.first_decoder + chunk.decoders - 1));
    if (chunk.mtp == 1) add("m");
    if (chunk.mtp > 1) add(fmt::format("m*{}", chunk.mtp));
    if (chunk.loss) add("L");
    return text.empty() ? "-" : text;
}

void write_table(std::ostream& out, const StageSplit& split) {
    const auto& request = split.request();
    out << fmt::format("{}{} over pp {}{}: {}\n", counted(request.layers, "decoder layer"),
                       request.mtp_layers > 0 ? fmt::format(" and {} MTP", request.mtp_layers) : "", split.pp(),
                       split.vpp() > 1 ? fmt::format(" x vpp {}", split.vpp()) : "", name_of(split.kind()));
    if (request.pipeline_layout) out << "layout string: " << *request.pipeline_layout << "\n";
    out << "E embedding, numbers decoder layers (from 0), m MTP, L loss\n\n";

    // Many stages: the first and last rows, and the number of those between.
    const int shown = split.pp() > kMostSplitRows ? kMostSplitRows / 2 : split.pp();
    const auto visible = [&](int p) { return p < shown || p >= split.pp() - shown; };
    std::vector<std::size_t> widths;
    std::size_t line = std::string_view("pp rank  layers").size();
    for (int v = 0; v < split.vpp() && line <= kSplitColumns; ++v) {
        std::size_t width = fmt::format("chunk {}", v).size();
        for (int p = 0; p < split.pp(); ++p) {
            if (visible(p)) width = std::max(width, cell(split.chunk(p, v)).size());
        }
        widths.push_back(width);
        line += 2 + width;
    }
    const bool one_line_per_chunk = line > kSplitColumns;
    out << "pp rank  layers";
    for (std::size_t v = 0; !one_line_per_chunk && v < widths.size(); ++v) {
        out << fmt::format("  {:<{}}", fmt::format("chunk {}", v), v + 1 == widths.size() ? 0 : widths[v]);
    }
    out << (one_line_per_chunk ? "  chunk  holds\n" : "\n");
    for (int p = 0; p < split.pp(); ++p) {
        if (!visible(p)) {
            out << fmt::format("... {} more pipeline ranks (--format json or csv lists all)\n", split.pp() - 2 * shown);
            p = split.pp() - shown - 1;
            continue;
        }
        const std::string head = fmt::format("{:>7}  {:>6}", p, split.decoders(p));
        if (one_line_per_chunk) {
            for (int v = 0; v < split.vpp(); ++v) {
                out << fmt::format("{}  {:>5}  {}\n", v == 0 ? head : std::string(head.size(), ' '), v, cell(split.chunk(p, v)));
            }
            continue;
        }
        out << head;
        for (std::size_t v = 0; v < widths.size(); ++v) {
            out << fmt::format("  {:<{}}", cell(split.chunk(p, static_cast<int>(v))), v + 1 == widths.size() ? 0 : widths[v]);
        }
        out << "\n";
    }
}

}  // namespace

int run_split(const std::vector<std::string>& args, Console& console) {
    SplitOptions given;
    std::vector<std::string> plan_file;
    Options options("split (PLAN | (--model CFG | --layers N) --pp P) [options]",
                    "Shows which layers each pipeline stage and model chunk holds. Without further options the layers are split evenly.");
    options.positional("PLAN", plan_file, 1, "a plan written by --save-plan");
    options.group("Layers");
    options.text("model", given.model, "CFG",
                 "preset name, Hugging Face config.json or its folder, Megatron-LM arguments, or mgplan's JSON");
    declare_assume_option(options, given.assume);
    options.integer("layers", given.layers, 1, kMostSplit, "number of decoder layers, instead of a model");
    options.integer("mtp-layers", given.mtp_layers, 0, kMostSplit,
                    "number of multi-token-prediction layers (default: the model's, else 0)");
    options.group("Pipeline");
    options.integer("pp", given.pp, 1, kMostSplit, "pipeline parallel size");
    options.integer("vpp", given.vpp, 1, kMostSplit, "model chunks per pipeline rank (default: the layout string's, else 1)");
    options.integer("first-stage-layers", given.request.first_stage_layers, 1, kMostSplit, "decoder layers of the first pipeline rank");
    options.integer("last-stage-layers", given.request.last_stage_layers, 1, kMostSplit, "decoder layers of the last pipeline rank");
    options.flag("account-for-embedding", given.request.account_for_embedding, "count the embedding as a layer of the first stage");
    options.flag("account-for-loss", given.request.account_for_loss, "count the loss as a layer of the last stage");
    options.text("pipeline-layout", given.request.pipeline_layout, "STRING",
                 "Megatron-LM's layout string, such as 'Et*3|(tt|)*29,m|L': E embedding, t decoder, m MTP, L loss, | between stages");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;

    std::string assumed_architecture;
    const StageSplit split = plan_file.empty() ? split_of(request_of(given, assumed_architecture, console))
                                               : split_of_plan(options, plan_file.front(), assumed_architecture);
    options.write(console, [&](std::ostream& out) {
        switch (options.format()) {
            case Format::json:
                out << to_json(split, assumed_architecture).dump() << "\n";
                return;
            case Format::csv:
                return write_csv(out, split);
            case Format::table:
                return write_table(out, split);
        }
    });
    return kDone;
}

}  // namespace mgplan::cli

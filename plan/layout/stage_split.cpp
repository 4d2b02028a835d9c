#include "plan/layout/stage_split.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "plan/layout/pipeline_layout.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

constexpr std::int64_t kMostSplitLayers = 65'536;
constexpr std::int64_t kMostSplitChunks = 65'536;

std::size_t chunk_index(const StageSplitRequest& r, std::int64_t pp_rank, std::int64_t vpp_rank) {
    return static_cast<std::size_t>(vpp_rank * r.pp + pp_rank);
}

/// Numbers the decoders through: chunks follow each other with the pipeline rank running fastest.
void number_decoders(std::vector<StageChunk>& chunks) {
    std::int64_t next = 0;
    for (auto& chunk : chunks) {
        chunk.first_decoder = next;
        next += chunk.decoders;
    }
}

/// Embedding in the first chunk; MTP layers and the loss in the last.
std::vector<StageChunk> closed_by_embedding_and_loss(const StageSplitRequest& r, std::vector<StageChunk> chunks) {
    chunks.front().embedding = true;
    chunks.back().mtp = r.mtp_layers;
    chunks.back().loss = true;
    number_decoders(chunks);
    return chunks;
}

std::vector<StageChunk> equal_chunks(const StageSplitRequest& r, std::int64_t decoders) {
    StageChunk chunk;
    chunk.decoders = decoders;
    return {static_cast<std::size_t>(std::int64_t{r.pp} * r.vpp), chunk};
}

StageSplit even_split(const StageSplitRequest& r) {
    return {r, SplitKind::even, closed_by_embedding_and_loss(r, equal_chunks(r, r.layers / (std::int64_t{r.pp} * r.vpp)))};
}

StageSplit accounted_split(const StageSplitRequest& r) {
    const std::int64_t counted = r.layers + (r.account_for_embedding ? 1 : 0) + (r.account_for_loss ? 1 : 0);
    auto chunks = equal_chunks(r, counted / (std::int64_t{r.pp} * r.vpp));
    if (r.account_for_embedding) --chunks.front().decoders;
    if (r.account_for_loss) --chunks.back().decoders;
    return {r, SplitKind::account_embedding_loss, closed_by_embedding_and_loss(r, std::move(chunks))};
}

/// Ranks between an uneven first and last one, and the layers left to them.
struct Middle {
    std::int64_t ranks;
    std::int64_t layers;
};

Middle middle_of(const StageSplitRequest& r) {
    return {r.pp - (r.first_stage_layers ? 1 : 0) - (r.last_stage_layers ? 1 : 0),
            r.layers - r.first_stage_layers.value_or(0) - r.last_stage_layers.value_or(0)};
}

StageSplit first_last_split(const StageSplitRequest& r) {
    const Middle middle = middle_of(r);
    auto chunks = equal_chunks(r, middle.ranks > 0 ? middle.layers / middle.ranks / r.vpp : 0);
    for (std::int64_t v = 0; v < r.vpp; ++v) {
        if (r.first_stage_layers) chunks[chunk_index(r, 0, v)].decoders = *r.first_stage_layers / r.vpp;
        if (r.last_stage_layers) chunks[chunk_index(r, r.pp - 1, v)].decoders = *r.last_stage_layers / r.vpp;
    }
    return {r, SplitKind::first_last, closed_by_embedding_and_loss(r, std::move(chunks))};
}

std::vector<StageChunk> chunks_of(const std::vector<std::string>& stages) {
    std::vector<StageChunk> chunks(stages.size());
    for (std::size_t i = 0; i < stages.size(); ++i) {
        for (const char letter : stages[i]) {
            switch (letter) {
                case 'E':
                    chunks[i].embedding = true;
                    break;
                case 't':
                    ++chunks[i].decoders;
                    break;
                case 'm':
                    ++chunks[i].mtp;
                    break;
                case 'L':
                    chunks[i].loss = true;
                    break;
                default:
                    MGPLAN_ASSERT(false, "a letter that the parser let through");
            }
        }
    }
    number_decoders(chunks);
    return chunks;
}

/// pp counts that split `layers` evenly, for messages: "pp = 1, 2, 4 or 8".
std::string even_pp_text(std::int64_t layers) {
    return fmt::format("pp = {}", divisors_text(layers, layers));
}

void check_ranges(const StageSplitRequest& r, Problems& problems) {
    if (r.layers < 1 || r.layers > kMostSplitLayers) problems.add("layers = {} is out of range; use 1 to {}", r.layers, kMostSplitLayers);
    if (r.mtp_layers < 0 || r.mtp_layers > kMostSplitLayers)
        problems.add("MTP layers = {} is out of range; use 0 to {}", r.mtp_layers, kMostSplitLayers);
    if (r.pp < 1 || r.pp > kMostSplitChunks) problems.add("pp = {} is out of range; use 1 to {}", r.pp, kMostSplitChunks);
    const int least_vpp = r.pipeline_layout ? 0 : 1;
    if (r.vpp < least_vpp || r.vpp > kMostSplitChunks) problems.add("vpp = {} is out of range; use 1 to {}", r.vpp, kMostSplitChunks);
    if (problems.empty() && std::int64_t{r.pp} * r.vpp > kMostSplitChunks) {
        problems.add("pp·vpp = {}·{} = {} is too large; use at most {}", r.pp, r.vpp, std::int64_t{r.pp} * r.vpp, kMostSplitChunks);
    }
    for (const auto& [name, value] :
         {std::pair{"first stage layers", r.first_stage_layers}, std::pair{"last stage layers", r.last_stage_layers}}) {
        if (value && (*value < 1 || *value > kMostSplitLayers))
            problems.add("{} = {} is out of range; use 1 to the number of layers", name, *value);
    }
}

void check_exclusions(const StageSplitRequest& r, Problems& problems) {
    const bool sizes = r.first_stage_layers || r.last_stage_layers;
    const bool accounts = r.account_for_embedding || r.account_for_loss;
    if (r.pipeline_layout && (sizes || accounts)) {
        problems.add("a pipeline layout string excludes {}; give one of them",
                     sizes && accounts ? "first and last stage layers and counting embedding or loss as layers"
                     : sizes           ? "first and last stage layers"
                                       : "counting embedding or loss as layers");
    }
    if (r.v_shaped && sizes)
        problems.add(
            "first or last stage layers are of a pipeline rank, which has an early and a late stage where chunks lie in a V; give a layout "
            "string or count embedding or loss as layers");
    if (sizes && accounts) problems.add("first or last stage layers exclude counting embedding or loss as layers; give one of them");
}

void check_even(const StageSplitRequest& r, Problems& problems) {
    const std::int64_t chunks = std::int64_t{r.pp} * r.vpp;
    if (r.layers < chunks) {
        problems.add("pp·vpp = {}·{} makes {} stages, more than layers = {}; use at most {}", r.pp, r.vpp, chunks, r.layers,
                     counted(r.layers, "stage"));
    } else if (r.layers % r.pp != 0) {
        problems.add(
            "layers = {} do not split evenly over pp = {}; use {}, count embedding or loss as layers, set first or last stage layers, or "
            "give a layout string",
            r.layers, r.pp, even_pp_text(r.layers));
    } else if (r.layers / r.pp % r.vpp != 0) {
        problems.add("layers per pipeline rank = {} do not split evenly into vpp = {} chunks; use vpp = {}, or a layout string",
                     r.layers / r.pp, r.vpp, divisors_text(r.layers / r.pp, r.layers / r.pp));
    }
}

void check_accounted(const StageSplitRequest& r, Problems& problems) {
    const std::int64_t counted = r.layers + (r.account_for_embedding ? 1 : 0) + (r.account_for_loss ? 1 : 0);
    const std::string_view what = !r.account_for_loss ? "embedding" : !r.account_for_embedding ? "loss" : "embedding and loss";
    const std::int64_t chunks = std::int64_t{r.pp} * r.vpp;
    if (counted < chunks) {
        problems.add("pp·vpp = {}·{} makes {} stages, more than layers with {} = {}; use at most {} stages", r.pp, r.vpp, chunks, what,
                     counted, counted);
    } else if (counted % r.pp != 0) {
        problems.add("layers with {} = {} do not split evenly over pp = {}; use {}, or another way to split", what, counted, r.pp,
                     even_pp_text(counted));
    } else if (counted / r.pp % r.vpp != 0) {
        problems.add("layers with {} per pipeline rank = {} do not split evenly into vpp = {} chunks; use vpp = {}", what, counted / r.pp,
                     r.vpp, divisors_text(counted / r.pp, counted / r.pp));
    }
}

void check_first_last(const StageSplitRequest& r, Problems& problems) {
    for (const auto& [name, value] :
         {std::pair{"first stage layers", r.first_stage_layers}, std::pair{"last stage layers", r.last_stage_layers}}) {
        if (value && *value % r.vpp != 0) {
            problems.add("{} = {} do not split evenly into vpp = {} chunks; use a multiple of {}", name, *value, r.vpp, r.vpp);
        }
    }
    const Middle middle = middle_of(r);
    if (middle.ranks < 0) {
        problems.add("pp = 1 has one stage, which is first and last; give first or last stage layers, not both");
    } else if (middle.layers < 0) {
        problems.add("first and last stage layers = {} exceed layers = {}; use fewer", r.layers - middle.layers, r.layers);
    } else if ((middle.layers == 0) != (middle.ranks == 0)) {
        problems.add("first and last stage layers leave {} layers to {} pipeline ranks between them; {}", middle.layers, middle.ranks,
                     middle.ranks == 0 ? "make them sum to the layers" : "leave some");
    } else if (middle.ranks > 0 && middle.layers % middle.ranks != 0) {
        problems.add(
            "the {} layers left by first and last stage do not split evenly over the other {} pipeline ranks; leave a multiple of {}",
            middle.layers, middle.ranks, middle.ranks);
    } else if (middle.ranks > 0 && middle.layers / middle.ranks % r.vpp != 0) {
        problems.add(
            "the {} layers of a pipeline rank between first and last do not split evenly into vpp = {} chunks; leave a multiple of {}",
            middle.layers / middle.ranks, r.vpp, middle.ranks * r.vpp);
    }
}

/// The rules of a layout string (pipeline_parallel_layer_layout.py validate_layer_layout) for stages in Megatron's order.
void check_layout(const StageSplitRequest& r, const std::vector<std::string>& stages, Problems& problems) {
    const auto count = static_cast<std::int64_t>(stages.size());
    if (count % r.pp != 0) {
        problems.add("pipeline layout has {} stages, no multiple of pp = {}; use pp·vpp stages (a | more makes a stage more)", count, r.pp);
    } else if (r.vpp != 0 && count / r.pp != r.vpp) {
        problems.add("pipeline layout has {} stages, which make vpp = {} with pp = {}, but vpp = {}; use {} stages or vpp = {}", count,
                     count / r.pp, r.pp, r.vpp, std::int64_t{r.pp} * r.vpp, count / r.pp);
    } else if (r.pp == 1 && count > 1) {
        problems.add("pipeline layout has {} stages, but pp = 1 has one; use pp = {} or remove the |", count, count);
    }

    std::string letters;
    std::int64_t mtp_stages = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto& stage = stages[static_cast<std::size_t>(i)];
        letters += stage;
        if (stage.find('m') == std::string::npos) continue;
        ++mtp_stages;
        if (count % r.pp == 0 && i / r.pp != count / r.pp - 1) {
            problems.add(
                "pipeline layout puts MTP layers into stage {} of {}, chunk {} of its pipeline rank; use one of the last {} stages", i + 1,
                count, i / r.pp + 1, r.pp);
        }
    }
    const auto times = [&](char letter) { return static_cast<std::int64_t>(std::count(letters.begin(), letters.end(), letter)); };
    if (times('E') != 1 || letters.front() != 'E') {
        problems.add("pipeline layout holds {} E; begin with E, and use it once", times('E'));
    }
    if (times('L') != 1 || letters.back() != 'L') problems.add("pipeline layout holds {} L; end with L, and use it once", times('L'));
    if (times('t') != r.layers)
        problems.add("pipeline layout holds {} decoder layers (t), but layers = {}; use {} t", times('t'), r.layers, r.layers);
    if (times('m') != r.mtp_layers) {
        problems.add("pipeline layout holds {} MTP layers (m), but MTP layers = {}; use {} m", times('m'), r.mtp_layers, r.mtp_layers);
    }
    if (mtp_stages > 1) problems.add("pipeline layout spreads MTP layers (m) over {} stages; put all into one", mtp_stages);
    const auto first_mtp = letters.find('m');
    if (first_mtp != std::string::npos && letters.find('t', first_mtp) != std::string::npos) {
        problems.add("pipeline layout has a decoder layer (t) behind an MTP layer (m); put the MTP layers behind all decoder layers");
    }
}

StageSplit layout_split(StageSplitRequest request, Problems& problems) {
    std::vector<std::string> stages;
    try {
        stages = parse_pipeline_layout(*request.pipeline_layout);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    if (!stages.empty()) check_layout(request, stages, problems);
    problems.throw_if_any();
    request.vpp = static_cast<int>(static_cast<std::int64_t>(stages.size()) / request.pp);
    return {std::move(request), SplitKind::layout_string, chunks_of(stages)};
}

/// Layers of the first and last rank when all between hold `middle`.
struct Ends {
    std::int64_t first;
    std::int64_t last;
};

/// The smallest equal middle ranks that leave first >= last >= 1 and first <= middle. In units of vpp layers, which
/// every rank's count must be a multiple of.
std::optional<Ends> smaller_ends(std::int64_t layers, std::int64_t pp, std::int64_t vpp) {
    // With two ranks there is no middle (and Megatron-LM divides by zero when they hold chunks).
    if (pp < 3 || layers % vpp != 0) return std::nullopt;
    const std::int64_t units = layers / vpp;
    // first + last <= 2·middle requires middle >= units/pp; a larger middle only makes the ends smaller.
    const std::int64_t middle = (units + pp - 1) / pp;
    const std::int64_t rest = units - (pp - 2) * middle;
    if (rest < 2) return std::nullopt;
    return Ends{(rest + 1) / 2 * vpp, rest / 2 * vpp};
}

/// Decoders of each chunk as even as possible: the last chunk and the first get the smaller count before others do, and
/// every pipeline rank gets a second small chunk only after all have one.
std::vector<std::int64_t> balanced_decoders(std::int64_t layers, std::int64_t pp, std::int64_t vpp) {
    const std::int64_t count = pp * vpp;
    std::vector<std::int64_t> decoders(static_cast<std::size_t>(count), layers / count + (layers % count == 0 ? 0 : 1));
    std::int64_t small = layers % count == 0 ? 0 : count - layers % count;
    const auto shrink = [&](std::int64_t index) {
        if (small == 0) return;
        --decoders[static_cast<std::size_t>(index)];
        --small;
    };
    shrink(count - 1);
    // Early ranks keep most microbatches alive, so the small chunks start there. The last rank has one already: its chunks
    // come one row later.
    for (std::int64_t v = 0; v < vpp && small > 0; ++v) {
        for (std::int64_t p = 0; p + 1 < pp; ++p) shrink(v * pp + p);
        if (v + 1 < vpp) shrink(v * pp + pp - 1);
    }
    return decoders;
}

}  // namespace

StageSplit::StageSplit(StageSplitRequest request, SplitKind kind, std::vector<StageChunk> chunks)
    : request_(std::move(request)), kind_(kind), chunks_(std::move(chunks)) {
    MGPLAN_ASSERT(request_.pp >= 1 && request_.vpp >= 1 &&
                      chunks_.size() == static_cast<std::size_t>(request_.pp) * static_cast<std::size_t>(request_.vpp),
                  "a split has pp·vpp chunks");
}

std::int64_t StageSplit::decoders(int pp_rank) const {
    std::int64_t sum = 0;
    for (int v = 0; v < vpp(); ++v) sum += chunk(pp_rank, v).decoders;
    return sum;
}

StageSplit make_stage_split(const StageSplitRequest& request) {
    Problems problems;
    check_ranges(request, problems);
    check_exclusions(request, problems);
    problems.throw_if_any();
    if (request.pipeline_layout) return layout_split(request, problems);

    const bool accounts = request.account_for_embedding || request.account_for_loss;
    const bool sizes = request.first_stage_layers || request.last_stage_layers;
    if (request.pp == 1 && request.vpp > 1) {
        problems.add("vpp = {} needs a pipeline, but pp = 1; use vpp = 1, or pp of 2 or more", request.vpp);
    } else if (accounts) {
        check_accounted(request, problems);
    } else if (sizes) {
        check_first_last(request, problems);
    } else {
        check_even(request, problems);
    }
    problems.throw_if_any();
    return accounts ? accounted_split(request) : sizes ? first_last_split(request) : even_split(request);
}

std::optional<StageSplit> automatic_stage_split(std::int64_t layers, std::int64_t mtp_layers, int pp, int vpp, bool v_shaped) {
    const std::int64_t chunks = std::int64_t{pp} * vpp;
    if (layers < 1 || layers > kMostSplitLayers || mtp_layers < 0 || mtp_layers > kMostSplitLayers) return std::nullopt;
    if (pp < 1 || vpp < 1 || chunks > kMostSplitChunks || (pp == 1 && vpp > 1)) return std::nullopt;

    StageSplitRequest request;
    request.layers = layers;
    request.mtp_layers = mtp_layers;
    request.pp = pp;
    request.vpp = vpp;
    request.v_shaped = v_shaped;
    if (layers % chunks == 0) return even_split(request);

    for (const auto& [embedding, loss] : {std::pair{true, true}, std::pair{false, true}, std::pair{true, false}}) {
        const std::int64_t counted = layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
        if (counted % chunks != 0) continue;
        request.account_for_embedding = embedding;
        request.account_for_loss = loss;
        return accounted_split(request);
    }
    if (layers < chunks) return std::nullopt;

    if (const auto ends = v_shaped ? std::nullopt : smaller_ends(layers, pp, vpp)) {
        request.first_stage_layers = ends->first;
        request.last_stage_layers = ends->last;
        return first_last_split(request);
    }

    const auto decoders = balanced_decoders(layers, pp, vpp);
    std::vector<std::string> stages;
    stages.reserve(decoders.size());
    for (const auto count : decoders) stages.emplace_back(static_cast<std::size_t>(count), 't');
    stages.front().insert(0, 1, 'E');
    stages.back().append(static_cast<std::size_t>(mtp_layers), 'm').append(1, 'L');
    request.pipeline_layout = compact_pipeline_layout(stages);
    return StageSplit{std::move(request), SplitKind::layout_string, chunks_of(stages)};
}

}  // namespace mgplan

#include "plan/json/layout_json.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/layout/layout_schedule.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/text/enum_reader.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostRanks = std::int64_t{1} << 40;
constexpr std::int64_t kMostChunksInFile = std::int64_t{1} << 20;  ///< of pp·vpp: what a split may allocate
constexpr std::int64_t kMostLayersInFile = std::int64_t{1} << 30;
constexpr std::int64_t kMostSequencesInFile = std::int64_t{1} << 32;

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json layers_per_chunk(const StageSplit& split) {
    Json ranks = Json::array();
    for (int pp = 0; pp < split.pp(); ++pp) {
        Json chunks = Json::array();
        for (int vpp = 0; vpp < split.vpp(); ++vpp) chunks.push_back(split.chunk(pp, vpp).decoders);
        ranks.push_back(std::move(chunks));
    }
    return ranks;
}

Json split_to_json(const StageSplitRequest& request) {
    return Json{{"layers", request.layers},
                {"mtp_layers", request.mtp_layers},
                {"first_stage_layers", or_null(request.first_stage_layers)},
                {"last_stage_layers", or_null(request.last_stage_layers)},
                {"account_for_embedding", request.account_for_embedding},
                {"account_for_loss", request.account_for_loss}};
}

std::optional<std::int64_t> optional_integer(JsonReader& reader, const char* field, std::int64_t low, std::int64_t high) {
    if (!reader.has(field)) {
        reader.ignore(field);
        return std::nullopt;
    }
    return reader.integer(field, low, high);
}

/// The split schedule that the file names; another name must be what pp and vpp make, as files without a name have it.
std::optional<SplitSchedule> read_schedule(JsonReader& reader, const Layout& layout) {
    reader.ignore("schedule");
    if (!reader.has("schedule")) return std::nullopt;
    const std::string name = reader.text("schedule");
    if (const auto split = parse_split_schedule(name)) return split;
    const std::vector<std::string> names = schedule_names();
    if (std::find(names.begin(), names.end(), name) == names.end())
        reader.problems().add("{}: schedule = '{}' is not known; use {}", reader.where(), name.substr(0, 60), any_of_text(names));
    else if (name != schedule_name(layout))
        reader.problems().add("{}: schedule = {} contradicts pp = {} and vpp = {}, which run {}; write that", reader.where(), name,
                              layout.sizes.pp, layout.vpp, schedule_name(layout));
    return std::nullopt;
}

StageSplitRequest split_from_json(JsonReader& layout, Problems& problems) {
    StageSplitRequest request;
    const Json* json = layout.member("split");
    if (json == nullptr) {
        problems.add("{}: field 'split' is missing; give {{\"layers\": N, \"mtp_layers\": 0, …}} as mgplan plan --save-plan writes it",
                     layout.where());
    } else {
        JsonReader reader(*json, layout.where() + ": split", problems);
        request.layers = reader.integer("layers", 1, kMostLayersInFile);
        request.mtp_layers = reader.integer("mtp_layers", 0, kMostLayersInFile);
        request.first_stage_layers = optional_integer(reader, "first_stage_layers", 0, kMostLayersInFile);
        request.last_stage_layers = optional_integer(reader, "last_stage_layers", 0, kMostLayersInFile);
        request.account_for_embedding = reader.boolean("account_for_embedding");
        request.account_for_loss = reader.boolean("account_for_loss");
        reader.finish();
    }
    if (layout.has("pipeline_layout")) request.pipeline_layout = layout.text("pipeline_layout");
    layout.ignore("pipeline_layout");
    return request;
}

template <class Enum>
EnumSet<Enum> read_set(JsonReader& reader, const char* field, std::optional<Enum> (*parse)(std::string_view),
                       const std::vector<std::string>& names) {
    EnumSet<Enum> set;
    if (!reader.has(field)) reader.problems().add("{}: field '{}' is missing; give a list, [] for none", reader.where(), field);
    for (const auto& name : reader.texts(field)) {
        if (const auto member = parse(name)) {
            set.add(*member);
        } else {
            reader.problems().add("{}: {} holds '{}'; use {}", reader.where(), field, name.substr(0, 60), any_of_text(names));
        }
    }
    return set;
}

/// world / (a·b·c) where that is whole. Divides step by step, so that no product can leave 64 bits.
std::optional<std::int64_t> quotient(std::int64_t world, std::array<std::int64_t, 3> factors) {
    for (const auto factor : factors) {
        if (world % factor != 0) return std::nullopt;
        world /= factor;
    }
    return world;
}

/// Both grids exist and the derived sizes written in the file are the ones that follow.
void check_sizes(const ParallelSizes& sizes, std::int64_t dp, std::int64_t edp, const std::string& where, Problems& found) {
    const auto expected_dp = quotient(sizes.world, {sizes.tp, sizes.cp, sizes.pp});
    const auto expected_edp = quotient(sizes.world, {sizes.etp, sizes.ep, sizes.pp});
    if (!expected_dp)
        found.add("{}: world = {} is no multiple of tp·cp·pp with tp = {}, cp = {}, pp = {}; use sizes whose product divides it", where,
                  sizes.world, sizes.tp, sizes.cp, sizes.pp);
    if (!expected_edp)
        found.add("{}: world = {} is no multiple of etp·ep·pp with etp = {}, ep = {}, pp = {}; use sizes whose product divides it", where,
                  sizes.world, sizes.etp, sizes.ep, sizes.pp);
    if (expected_dp && dp != *expected_dp)
        found.add("{}: dp = {} contradicts world / (tp·cp·pp) = {}; write {}", where, dp, *expected_dp, *expected_dp);
    if (expected_edp && edp != *expected_edp)
        found.add("{}: edp = {} contradicts world / (etp·ep·pp) = {}; write {}", where, edp, *expected_edp, *expected_edp);
    if (expected_dp && expected_edp) {
        for (const auto& problem : problems(sizes)) found.add("{}: {}", where, problem);
    }
}

void check_recompute(const Layout& layout, const std::string& where, Problems& found) {
    if (layout.recompute == Recompute::full && (!layout.recompute_method || layout.recompute_num_layers < 1))
        found.add("{}: recompute = full needs recompute_method (uniform or block) and recompute_num_layers of at least 1", where);
    if (layout.recompute == Recompute::selective && layout.recompute_modules.empty())
        found.add("{}: recompute = selective needs at least one of recompute_modules; add core_attn or use recompute = none", where);
}

}  // namespace

Json layout_to_json(const Layout& layout) {
    MGPLAN_ASSERT(layout.split != nullptr, "a layout has a stage split");
    const ParallelSizes& sizes = layout.sizes;
    return Json{{"world", sizes.world},
                {"tp", sizes.tp},
                {"cp", sizes.cp},
                {"ep", sizes.ep},
                {"etp", sizes.etp},
                {"dp", layout.dp()},
                {"edp", layout.edp()},
                {"pp", sizes.pp},
                {"vpp", layout.vpp},
                {"schedule", schedule_name(layout)},
                {"group_size", layout.group_size},
                {"order", sizes.order.text()},
                {"optimizer_instances", sizes.optimizer_instances},
                {"micro_batch", layout.micro_batch},
                {"num_microbatches", layout.num_microbatches},
                {"sequence_parallel", layout.sequence_parallel},
                {"cp_comm_type", to_string(layout.cp_comm_type)},
                {"recompute", to_string(layout.recompute)},
                {"recompute_modules", names_in(layout.recompute_modules)},
                {"recompute_method", layout.recompute_method ? Json(to_string(*layout.recompute_method)) : Json(nullptr)},
                {"recompute_num_layers", layout.recompute_num_layers != 0 ? Json(layout.recompute_num_layers) : Json(nullptr)},
                {"layers_per_chunk", layers_per_chunk(*layout.split)},
                {"pipeline_layout", or_null(layout.split->request().pipeline_layout)},
                {"cuda_graphs", names_in(layout.cuda_graphs)},
                {"engine", to_string(layout.engine)},
                {"split", split_to_json(layout.split->request())}};
}

Layout layout_from_json(const Json& json, const std::string& where) {
    Problems found;
    JsonReader reader(json, where, found);
    Layout layout;
    ParallelSizes& sizes = layout.sizes;
    sizes.world = reader.integer("world", 1, kMostRanks);
    const auto size = [&](const char* field) { return reader.integer(field, 1, kMostRanks); };
    sizes.tp = size("tp");
    sizes.cp = size("cp");
    sizes.ep = size("ep");
    sizes.etp = size("etp");
    const std::int64_t dp = size("dp");
    const std::int64_t edp = size("edp");
    sizes.pp = reader.integer("pp", 1, kMostChunksInFile);
    layout.vpp = static_cast<int>(reader.integer("vpp", 1, kMostChunksInFile));
    layout.schedule = read_schedule(reader, layout);
    layout.group_size = reader.integer("group_size", 1, kMostSequencesInFile);
    try {
        sizes.order = AxisOrder::parse(reader.text("order"));
    } catch (const ConfigError& error) {
        found.absorb(error, where + ": ");
    }
    sizes.optimizer_instances = size("optimizer_instances");
    layout.micro_batch = reader.integer("micro_batch", 1, kMostSequencesInFile);
    layout.num_microbatches = reader.integer("num_microbatches", 1, kMostSequencesInFile);
    layout.sequence_parallel = reader.boolean("sequence_parallel");
    layout.cp_comm_type = read_enum(reader, "cp_comm_type", parse_cp_comm_type, cp_comm_type_names(), CpCommType::p2p);
    layout.recompute = read_enum(reader, "recompute", parse_recompute, recompute_names(), Recompute::none);
    layout.recompute_modules = read_set(reader, "recompute_modules", parse_recompute_module, recompute_module_names());
    if (reader.has("recompute_method"))
        layout.recompute_method =
            read_enum(reader, "recompute_method", parse_recompute_method, recompute_method_names(), RecomputeMethod::uniform);
    reader.ignore("recompute_method");
    layout.recompute_num_layers = optional_integer(reader, "recompute_num_layers", 1, kMostLayersInFile).value_or(0);
    const Json* chunks = reader.member("layers_per_chunk");
    if (chunks == nullptr) found.add("{}: field 'layers_per_chunk' is missing; give the layers of each chunk per pp rank", where);
    StageSplitRequest request = split_from_json(reader, found);
    layout.cuda_graphs = read_set(reader, "cuda_graphs", parse_cuda_graph_scope, cuda_graph_scope_names());
    layout.engine = read_enum(reader, "engine", parse_engine, engine_names(), Engine::mgplan);
    reader.finish();
    // Contradictions are only looked for between values that could be read.
    found.throw_if_any();

    check_sizes(sizes, dp, edp, where, found);
    check_recompute(layout, where, found);
    if (layout.vpp > 1 && sizes.pp == 1)
        found.add("{}: vpp = {} needs pp > 1; use vpp = 1", where, layout.vpp);
    else if (layout.vpp > 1 && !layout.schedule) {
        if (const auto refusal = interleaved_refusal(static_cast<int>(sizes.pp), layout.num_microbatches, layout.group_size))
            found.add("{}: the interleaved schedule refuses pp = {}, num_microbatches = {}, group_size = {}: {}", where, sizes.pp,
                      layout.num_microbatches, layout.group_size, *refusal);
    }
    if (sizes.pp * layout.vpp > kMostChunksInFile) {
        found.add("{}: pp = {} times vpp = {} makes more than {} model chunks; use fewer", where, sizes.pp, layout.vpp, kMostChunksInFile);
    } else {
        request.pp = static_cast<int>(sizes.pp);
        request.vpp = layout.vpp;
        request.v_shaped = layout.schedule && is_v_shaped(*layout.schedule) && layout.vpp == 2;
        try {
            layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
            if (const Json expected = layers_per_chunk(*layout.split); *chunks != expected)
                found.add("{}: layers_per_chunk contradicts the split that pp, vpp, split and pipeline_layout ask for; write {}", where,
                          expected.size() <= 64 ? expected.dump() : std::string("what mgplan split prints as num_layers"));
        } catch (const ConfigError& error) {
            found.absorb(error, where + ": ");
        }
    }
    for (const auto& problem : split_schedule_problems(layout)) found.add("{}: {}", where, problem);
    found.throw_if_any();
    return layout;
}

}  // namespace mgplan

// One network described by fields and by layers, in files of both versions, has one prediction.

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/model_source.hpp"
#include "plan/json/model_json.hpp"
#include "plan/json/model_layers_json.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::twin_models_test {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kSettings{"--world 16 --tp 2",
                               "--world 64 --tp 4 --pp 2",
                               "--world 16 --tp 2 --engine mgplan",
                               "--world 64 --tp 2 --pp 2 --vpp 2",
                               "--world 16 --tp 2 --cp 2",
                               "--world 16 --tp 2 --recompute full",
                               "--world 16 --tp 2 --recompute selective",
                               "--world 16 --tp 2 --precision fp8-blockwise",
                               "--world 16 --tp 2 --precision fp8-blockwise --engine mgplan",
                               "--world 16 --tp 2 --cuda-graphs attn",
                               "--world 16 --tp 2 --optimizer muon",
                               "--world 16 --tp 2 --optimizer muon --engine mgplan",
                               "--world 16 --tp 2 --offload core_attn",
                               "--world 16 --tp 2 --offload core_attn --engine mgplan",
                               "--world 16 --tp 2 --offload expert_fc1"};

/// Answer of simulate without the model's name and layers.
Json answer(const std::string& model, const std::string& setting) {
    const Said said = say(fmt::format("simulate --model {} {} --ep {} --format json", model, setting,
                                      model.find("mixtral") != std::string::npos && setting.find("--cp") == std::string::npos ? 8 : 1));
    Json json = Json::parse(said.out, nullptr, false);
    if (json.is_discarded()) return Json{{"code", said.code}, {"says", said.err}};
    json.erase("model");
    json["code"] = said.code;
    return json;
}

TEST(TwinModels, HaveOnePredictionHoweverTheirLayersAreDescribed) {
    for (const std::string preset : {"llama3-8b", "mixtral-8x7b"}) {
        const Model layers = typed_model(formats::load_model(preset).model);
        const TempFile typed(preset + "_version2.json", layers_to_json(layers).dump());
        const TempFile parts(preset + "_parts.json", model_to_json(spec_of_kinds(layers)).dump());
        for (const std::string setting : kSettings) {
            const Json expected = answer(preset, setting);
            EXPECT_EQ(answer(typed.path(), setting), expected) << preset << " " << setting;
            EXPECT_EQ(answer(parts.path(), setting), expected) << preset << " " << setting;
        }
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::twin_models_test

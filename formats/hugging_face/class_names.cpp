#include "formats/hugging_face/class_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

/// Parts of the names of draft models, which predict tokens next to a target model and share tables with it. Source: the classes of
/// SpecForge, vLLM and SGLang.
constexpr std::array<std::string_view, 8> kDraftNames{"eagle", "dflash", "dspark", "domino", "medusa", "speculator", "draft", "hydra"};

/// Ends of classes, longer ones first.
constexpr std::array<std::string_view, 11> kHeadEnds{"ForSequenceClassification",
                                                     "ForTokenClassification",
                                                     "ForQuestionAnswering",
                                                     "ForConditionalGeneration",
                                                     "ForProcessRewardModel",
                                                     "ProcessRewardModel",
                                                     "ForRewardModel",
                                                     "RewardModel",
                                                     "ForCausalLM",
                                                     "LMHeadModel",
                                                     "Model"};

/// Letters and digits in lower case: "Qwen2_5_VL" and "qwen2_5_vl" are alike.
std::string plain(std::string_view name) {
    std::string letters;
    for (const char c : lower_case(name)) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) letters += c;
    }
    return letters;
}

/// The class without its head: "Llama" of "LlamaForCausalLM".
std::string_view stem_of(std::string_view class_name) {
    for (const std::string_view head : kHeadEnds) {
        if (class_name.ends_with(head)) return class_name.substr(0, class_name.size() - head.size());
    }
    return class_name;
}

/// "qwen2vl" of "qwen2_vl_text".
std::string plain_type(std::string_view type) {
    for (const std::string_view end : {"_text_model", "_text"}) {
        if (type.ends_with(end)) type.remove_suffix(end.size());
    }
    return plain(type);
}

}  // namespace

Head head_of(std::string_view class_name) {
    if (class_name.ends_with("ForSequenceClassification")) return Head::texts;
    if (class_name.ends_with("ForTokenClassification")) return Head::tokens;
    if (class_name.ends_with("ForQuestionAnswering")) return Head::spans;
    if (class_name.ends_with("RewardModel")) return Head::reward;
    const bool bare = class_name.ends_with("Model") && !class_name.ends_with("LMHeadModel") && find_model_class(class_name) == nullptr;
    return bare ? Head::none : Head::output_layer;
}

std::string other_network_of_class(std::string_view class_name, const ModelType& type, std::string_view stated) {
    const std::string lower = lower_case(class_name);
    if (std::any_of(kDraftNames.begin(), kDraftNames.end(),
                    [&lower](std::string_view part) { return lower.find(part) != std::string::npos; }))
        return "is a draft model, which predicts tokens next to a target model and shares tables with it, and which no layer here "
               "describes; "
               "give the config.json of the target model";
    const Head head = head_of(class_name);
    if (find_model_class(class_name) != nullptr || (head != Head::output_layer && head != Head::none)) return "";
    const std::string stem = plain(stem_of(class_name));
    if (stem == plain(stem_of(type.class_name)) || stem == plain_type(type.name) || stem == plain_type(stated)) return "";
    return fmt::format("is no class of model_type '{}'{}, and no layer here describes it; give the config.json of a known class", type.name,
                       type.class_name.empty() ? "" : fmt::format(" ({})", type.class_name));
}

}  // namespace mgplan::formats

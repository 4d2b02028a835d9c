// Types that are no decoder trained on next tokens, and why. Source of each: the mappings of models/auto/modeling_auto.py and modeling_*.py
// of the type in transformers 5.23.0.

#include <algorithm>
#include <array>
#include <utility>

#include "formats/hugging_face/model_types.hpp"

namespace mgplan::formats {
namespace {

constexpr std::array<std::string_view, 88> kEncoders{
    // Encoders: their classes fill masked words. Some can be made the decoder of another model by a field.
    "albert", "bert", "bert-generation", "big_bird", "camembert", "canine", "clip", "convbert", "data2vec-text", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "esm", "esmc", "eurobert", "flaubert", "fnet", "funnel", "gte", "ibert", "jina_embeddings_v3",
    "layoutlm", "longformer", "luke", "megatron-bert", "mobilebert", "modernbert", "mpnet", "mra", "nomic_bert", "nystromformer",
    "perceiver", "reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "rwkv", "squeezebert", "tapas",
    "ultrabert", "ultravbert", "vit", "xlm", "xlm-roberta", "xlm-roberta-xl", "xmod", "yoso",
    // Encoder-decoders.
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "florence2", "fsmt", "led", "longt5", "m2m_100",
    "marian", "mbart", "moonshine", "mt5", "musicgen", "musicgen_melody", "mvp", "nllb-moe", "pegasus", "pegasus_x", "pix2struct", "plbart",
    "pop2piano", "prophetnet", "seamless_m4t", "seamless_m4t_v2", "speech-encoder-decoder", "speech_to_text", "speecht5",
    "switch_transformers", "t5", "t5gemma", "t5gemma2", "udop", "umt5", "vision-encoder-decoder", "whisper"};

/// Types with a reason of their own, as the end of a sentence that begins with the type.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kReasons{
    {{"blt", "is four transformers, over bytes and over patches of them of an uneven length, which attend to each other"},
     {"xlnet",
      "is trained on words in an order of their own (permutation language modelling: two streams of attention see words on both "
      "sides)"},
     {"trocr", "is the decoder of an encoder-decoder: its layers attend to a picture's encoding as well"},
     {"blip_text_model", "is the decoder of an encoder-decoder: its layers attend to a picture's encoding as well"},
     {"git", "captions pictures: their parts stand in front of the words and see each other in both directions"},
     {"idefics", "has layers between its own that attend to pictures' encodings"},
     {"evolla", "has layers that attend to the encodings of proteins"},
     {"moshi", "is two transformers, one over time and one over the codes of sound at each time, over words and sound together"},
     {"moshi_depth", "runs over the codes of sound at one time, after another transformer, with matrices for each code"},
     {"kyutai_speech_to_text", "reads a word and the codes of sound together at each place"},
     {"pi0", "gives a robot's movements by flow matching, from a language model and a second transformer that share attention"},
     {"diffusion_gemma", "is trained by block diffusion: its decoder sees a block of words in both directions"},
     {"diffusion_gemma_text", "is trained by block diffusion: its decoder sees a block of words in both directions"},
     {"cpmant", "sees the words on both sides of each: all are the context of its attention"}}};

}  // namespace

std::string_view other_kind(std::string_view name) {
    for (const auto& [type, reason] : kReasons) {
        if (type == name) return reason;
    }
    return std::find(kEncoders.begin(), kEncoders.end(), name) == kEncoders.end() ? "" : "is no decoder-only transformer";
}

}  // namespace mgplan::formats

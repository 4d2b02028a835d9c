#pragma once
// Differences of types from a llama that fields of ModelSpec describe: norms, the order of attention and MLP, multipliers, positions by
// layer. Source of each: modeling_*.py and configuration_*.py of the type in transformers 5.23.0.

#include "formats/hugging_face/hugging_face_layers.hpp"

namespace mgplan::formats {

void arrange_gemma(ConfigParts& parts);  ///< Gemma 1, 2, 3 and VaultGemma
void arrange_glm4(ConfigParts& parts);
void arrange_gpt_oss(ConfigParts& parts);
void arrange_hunyuan(ConfigParts& parts);       ///< norms of queries and keys after the rotary positions
void arrange_hunyuan_moe(ConfigParts& parts);   ///< the same with experts, of which lists may say the sizes layer by layer
void arrange_norms_behind(ConfigParts& parts);  ///< OLMo 2 and 3, FlexOlmo, EXAONE 4: norms only after the halves
void arrange_cohere(ConfigParts& parts);        ///< both halves after one norm
void arrange_gpt_neox(ConfigParts& parts);      ///< both halves in parallel, a norm for each
void arrange_gpt_neox_japanese(ConfigParts& parts);
void arrange_ctrl(ConfigParts& parts);
void arrange_biogpt(ConfigParts& parts);
void arrange_baichuan(ConfigParts& parts);
void arrange_bailing(ConfigParts& parts);  ///< Ling and Ring
void arrange_molmo2(ConfigParts& parts);
void arrange_bloom(ConfigParts& parts);  ///< a norm of the embeddings, ALiBi
void arrange_phi(ConfigParts& parts);
void arrange_falcon(ConfigParts& parts);
void arrange_mpt(ConfigParts& parts);
void arrange_chatglm(ConfigParts& parts);
void arrange_gptj(ConfigParts& parts);  ///< GPT-J and CodeGen
void arrange_stablelm(ConfigParts& parts);
void arrange_cohere_compass(ConfigParts& parts);  ///< the same, with positions by the kind of layer
void arrange_muse_glimmer(ConfigParts& parts);    ///< norms after the halves too, a gate of attention's output
void arrange_granite(ConfigParts& parts);         ///< multipliers
void arrange_granite_swa(ConfigParts& parts);     ///< the same with a rotary base for each layer
void arrange_minicpm(ConfigParts& parts);
void arrange_hyperclovax(ConfigParts& parts);
void arrange_ernie(ConfigParts& parts);  ///< ERNIE 4.5, dense
void arrange_ernie_moe(ConfigParts& parts);
void arrange_dbrx(ConfigParts& parts);
void arrange_hy_v3(ConfigParts& parts);
void arrange_exaone_moe(ConfigParts& parts);  ///< rotary positions in layers with a window alone
void arrange_mellum(ConfigParts& parts);      ///< a rotary base for each kind of layer
void arrange_flint(ConfigParts& parts);       ///< windows, sinks, layers without experts
void arrange_olmo(ConfigParts& parts);        ///< OLMo 1: LayerNorm without weights
void arrange_apertus(ConfigParts& parts);     ///< xIELU
void arrange_smollm3(ConfigParts& parts);     ///< layers without rotary positions

}  // namespace mgplan::formats
